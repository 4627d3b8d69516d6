"""The ops in plain torch, on CPU and GPU: what the kernels are compared with."""
