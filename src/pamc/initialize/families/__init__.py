"""Families of quick clusterings, one file each; :mod:`pamc.initialize.family` chooses among their partitions."""
