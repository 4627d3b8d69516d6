"""How the encoder and the clusters get their first values."""
