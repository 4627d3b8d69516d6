"""Clustering methods, each with an encoder and an objective."""
