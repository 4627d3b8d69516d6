"""Sphinx settings."""

import pamc

project = "pamc"
author = "The pamc developers"
release = pamc.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx.ext.mathjax"]
html_theme = "furo"
html_title = "pamc"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False
exclude_patterns = ["_build"]
