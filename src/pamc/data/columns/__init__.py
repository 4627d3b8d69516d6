"""Tables as people have them: the type of each column, found from its cells, and its encoding as numbers.

A table is read as raw columns (`raw`), whose types are found (`types`) and which are encoded as numbers in their own
units, with NaN for missing cells (`encoding`). How much each variable counts is decided by
:mod:`pamc.data.preprocessing`.
"""
