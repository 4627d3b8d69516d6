"""Training: the pipeline of a fit, the training loop, the full-batch gradient and checkpoints."""
