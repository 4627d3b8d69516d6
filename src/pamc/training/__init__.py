"""The exact step, the one loop, the starts."""
