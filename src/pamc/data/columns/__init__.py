"""Tables of mixed types: infer the type of each column from its cells, and encode the column as numbers.

A table is read as raw columns (`raw`). Their types are inferred (`types`), and they are encoded as numbers in their
original units, with NaN for missing cells (`encoding`). The weight of each variable is set by
:mod:`pamc.data.preprocessing`.
"""
