"""The ops as fused Triton kernels on a GPU: launchers of the kernels in :mod:`pamc.ops.kernels`."""
