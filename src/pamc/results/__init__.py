"""The results of a run: metrics, records and tables."""
