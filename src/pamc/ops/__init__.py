"""The mathematics of the paper: a dense reference, the edge-list form, label-free scores."""
