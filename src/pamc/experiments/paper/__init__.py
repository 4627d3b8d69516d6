"""The experiments of the paper, one module per family; each registers itself by name."""
