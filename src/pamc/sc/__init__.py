"""Tools for scanpy: `pamc.sc.tl.pamc(adata, n_clusters=8)` works like scanpy's own tools."""

from pamc.sc import tl as tl
