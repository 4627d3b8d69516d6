"""Fitting with several processes."""
