"""Files in, one checked AttributedGraph out.

Tables (.csv, .tsv, .txt, .parquet; text also with .gz) name their columns, and options say which column is an id, a
truth or no feature. Matrix files (.npy, .npz, .mtx, svmlight) hold features alone or the whole graph. Features are
stored as float32 unless told otherwise; text is parsed in double precision and rounded once. To add a format, add a
module to `pamc.data.readers.formats`.
"""

from pamc.data.readers.edges import read_edges
from pamc.data.readers.features import read_features, read_graph
from pamc.data.readers.format import FORMATS, Format, endings, is_table, open_table
from pamc.data.readers.labels import LabelColumn, read_label_pairs, read_labels

__all__ = [
    "FORMATS",
    "Format",
    "LabelColumn",
    "endings",
    "is_table",
    "open_table",
    "read_edges",
    "read_features",
    "read_graph",
    "read_label_pairs",
    "read_labels",
]
