"""Read files into a validated AttributedGraph.

Tables (.csv, .tsv, .txt, .parquet, .xlsx, .feather; text files may end in .gz) have named columns, and options select
the id column, the true labels and the columns that are not features. Matrix files (.npy, .npz, .mtx, svmlight) contain
only features or the whole graph. Features are stored as float32 by default; text is parsed in double precision and
rounded once. To add a format, add a module to `pamc.data.readers.formats`.
"""

from pamc.data.readers.edges import read_edges
from pamc.data.readers.features import describe_table, raw_columns, read_features, read_graph
from pamc.data.readers.format import FORMATS, Format, endings, is_table, open_table
from pamc.data.readers.labels import LabelColumn, read_label_pairs, read_labels

__all__ = [
    "FORMATS",
    "Format",
    "LabelColumn",
    "describe_table",
    "endings",
    "is_table",
    "open_table",
    "raw_columns",
    "read_edges",
    "read_features",
    "read_graph",
    "read_label_pairs",
    "read_labels",
]
