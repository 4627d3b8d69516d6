"""Sphinx settings. The build needs no network, and neither do the pages: formulas are MathML, made here."""

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

import pamc

project = "pamc"
author = "The pamc developers"
release = pamc.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "pamc"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
# Notebooks are shown with the outputs they were stored with; a test runs them again.
nb_execution_mode = "off"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False
exclude_patterns = ["_build"]


def _mathml(translator: Any, node: nodes.Element, *, as_block: bool) -> None:
    """Write a formula as MathML, which every browser shows without a script."""
    source = node.astext().replace(r"\quad", r"\ ")
    formula = tex2mathml(source, as_block=as_block)
    if not as_block:
        translator.body.append(formula)
        raise nodes.SkipNode
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    translator.body.append(f'<div class="math">{number}{formula}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Register the way formulas are written."""
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(lambda self, node: _mathml(self, node, as_block=False), None),
        block_renderers=(lambda self, node: _mathml(self, node, as_block=True), None),
    )
