"""Graphs on disk: memory-mapped features and neighbors of any number of rows, with checksums.

A store is a folder:

    manifest.json   format and version, sizes, dtypes, feature names, kind of ids, sources, checksums
    features.npy    (N, d) float32 or float16
    indptr.npy      (N + 1,) int64: the neighbors of row i are indices[indptr[i] : indptr[i + 1]]
    indices.npy     int32, or int64 above 2³¹ − 1 rows: each pair in both directions, sorted, without diagonal
    weight.npy      float32, one per stored neighbor; absent if all are 1
    indptr-0.npy …  with several relations: the same three files for each, in place of the above
    labels.npy      (N,) int64 true classes, never used by training; may be absent
    ids             absent for rows named 0 … N−1, else ids.npy (int64) or ids.parquet (text)
    verified.json   state of the files when their checksums were last verified; written by the first fit
"""

from pamc.data.store.store import Store, has_manifest, index_dtype, is_store, open_store, row_blocks

__all__ = ["Store", "has_manifest", "index_dtype", "is_store", "open_store", "row_blocks"]
