"""Initialization of the encoder and the cluster centers."""
