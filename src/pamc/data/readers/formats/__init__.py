"""One module per file format; each registers itself, so that a new format is one new file."""
