"""Measurements of speed and memory: cases, providers, rows."""
