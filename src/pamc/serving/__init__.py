"""A server that assigns rows to the clusters of a model, from its ONNX file; it needs no torch."""
