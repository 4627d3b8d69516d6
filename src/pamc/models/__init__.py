"""Methods: an encoder and an objective each."""
