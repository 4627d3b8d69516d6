"""The ops in plain torch, on CPU and GPU, with which the kernels are compared."""
