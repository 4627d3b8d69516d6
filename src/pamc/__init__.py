"""pamc: clustering with the PamC loss, every negative counted in linear time."""

__version__ = "0.1.0"
