"""Graphs and nearest neighbors, from edges or features to positive pairs."""
