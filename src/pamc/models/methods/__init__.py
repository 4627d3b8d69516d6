"""Methods, one file each, that register themselves."""
