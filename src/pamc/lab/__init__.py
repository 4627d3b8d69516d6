"""Benchmarks and experiments: measure pamc, compare methods with true labels, and render pages from the rows."""
