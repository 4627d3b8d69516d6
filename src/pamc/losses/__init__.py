"""Losses as functions and thin modules; no loss knows a model."""
