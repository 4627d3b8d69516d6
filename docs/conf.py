"""Sphinx settings. The build needs no network, and neither do the pages: formulas are MathML, made here."""

import html
import re
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

import pamc

logger = logging.getLogger(__name__)

_MATHML = "http://www.w3.org/1998/Math/MathML"
_ACCENTS = ("ˆ", "ˉ", "˜", "~")

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
    source = (
        re.sub(r"\\(textstyle|[bB]ig)\b", "", node.astext()).replace(r"\tfrac", r"\frac").replace(r"\dots", r"\ldots")
    )
    try:
        formula = _indices_beside(tex2mathml(source, as_block=as_block))
    except MathError as error:
        logger.warning("cannot be written as MathML: %s (%s)", source, error, location=node)
        formula = f"<code>{html.escape(source)}</code>"
    if not as_block:
        translator.body.append(formula)
        raise nodes.SkipNode
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    translator.body.append(f'<div class="math">{number}{formula}</div>\n')
    raise nodes.SkipNode


def _indices_beside(mathml: str) -> str:
    """Return a formula in which the index of a letter with an accent stands beside it, not below."""
    # XML knows five entities by name; the others are written out.
    root = ElementTree.fromstring(
        re.sub(r"&(?!(?:amp|lt|gt|quot|apos);)\w+;", lambda entity: html.unescape(entity[0]), mathml)
    )
    tag = f"{{{_MATHML}}}"
    for node in root.iter(f"{tag}munderover"):
        letter, index, accent = node
        if accent.text in _ACCENTS:
            accented = ElementTree.Element(f"{tag}mover", {"accent": "true"})
            accented.extend([letter, accent])
            node.tag, node[:] = f"{tag}msub", [accented, index]
    ElementTree.register_namespace("", _MATHML)
    return ElementTree.tostring(root, encoding="unicode")


def _all_public_names(_: Sphinx, docname: str, source: list[str]) -> None:
    """Add to the API what `pamc` offers and the page does not name: a new public name is never left out."""
    mark = "<!-- public names that stand nowhere above -->"
    if docname == "api":
        left = [name for name in pamc.__all__ if f":: pamc.{name}\n" not in source[0]]
        entries = "\n".join(
            f".. auto{'class' if isinstance(getattr(pamc, name), type) else 'function'}:: pamc.{name}" for name in left
        )
        body = f"```{{eval-rst}}\n{entries}\n```" if left else "There are none."
        source[0] = source[0].replace(mark, body)


def setup(app: Sphinx) -> None:
    """Register the way formulas are written, and what completes the API."""
    app.connect("source-read", _all_public_names)
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(lambda self, node: _mathml(self, node, as_block=False), None),
        block_renderers=(lambda self, node: _mathml(self, node, as_block=True), None),
    )
