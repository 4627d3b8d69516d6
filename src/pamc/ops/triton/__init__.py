"""The ops as fused Triton kernels on a GPU: how each kernel of :mod:`pamc.ops.kernels` is launched."""
