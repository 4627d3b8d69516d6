"""A server that assigns rows to the clusters of a model; with an ONNX file, it needs no torch."""
