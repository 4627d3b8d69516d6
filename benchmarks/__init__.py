"""Measurements of pamc: cases, rows, tables."""
