"""Device code: what one program of a Triton kernel does."""
