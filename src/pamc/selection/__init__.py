"""Selection of the number of clusters."""
