"""Data in: the container, readers, adapters, the catalog of known sets and synthetic graphs."""
