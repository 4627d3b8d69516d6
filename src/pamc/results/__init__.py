"""What a run gives: metrics, records, tables."""
