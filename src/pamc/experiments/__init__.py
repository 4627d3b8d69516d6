"""Experiments: everything that compares methods and uses labels to do so."""
