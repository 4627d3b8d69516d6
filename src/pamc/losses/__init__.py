"""Losses as functions and thin modules, independent of any model."""
