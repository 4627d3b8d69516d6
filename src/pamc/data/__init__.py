"""The data container, file readers, adapters, the catalog of known data sets and synthetic graphs."""
