"""File formats, one module each; a module registers its format, so adding a format means adding one file."""
