"""One file per initializer, named after it; each registers itself."""
