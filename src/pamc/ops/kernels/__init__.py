"""Device code: the work of one program of each Triton kernel."""
