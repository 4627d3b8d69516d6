"""A fitted model as one ONNX graph: columns, preprocessing, encoder, assignment, confidence and noise."""
