"""The documentation: `uv run --extra docs sphinx-build -W docs build/docs`.

The pages are Markdown that code hosts show as they are, with formulas in dollars. The public names are made when the
pages are built, from their docstrings.
"""

import re
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

sys.path.insert(0, str(Path(__file__).parents[1]))

from iha_theory import __version__

project = "iha-theory"
author = "the iha-theory authors"
copyright = f"2026, {author}"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"{project} {version}"
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_dmath_double_inline = True
myst_heading_anchors = 3
html_math_renderer = "mathml"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
napoleon_custom_sections = [("Args beyond AttentionLayer", "params_style")]
napoleon_use_ivar = True
default_role = "code"


SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields)\b[^:]*:$")
KEPT = re.compile(r"(`[^`]+`|\*\*[^*]+\*\*)")
"""Code and bold words."""


def to_restructured_text(_app: Sphinx, _what: str, _name: str, _of: object, _options: object, lines: list[str]) -> None:
    """Our docstrings are plain text: * | _ mean what they say, and what is indented outside a section is a formula."""
    made: list[str] = []
    section = formula = False
    for line in lines:
        if line and not line.startswith(" "):
            section = bool(SECTION.match(line))
        if section:
            made.append(line.replace("`", "") if SECTION.match(line) else _escaped(line))
            continue
        if line and formula != line.startswith("    "):
            formula = not formula
            made += ["", "::", ""] if formula and not item(made) else ["", "  ::", ""] if formula else [""]
        made.append(line if formula else _escaped(line))
    lines[:] = made


def item(lines: list[str]) -> bool:
    """Whether the last line that is not empty is of a list."""
    return next((line for line in reversed(lines) if line), "").startswith(("- ", "  "))


def _escaped(line: str) -> str:
    return "".join(
        f"``{part[1:-1]}``" if part.startswith("`") else part if part.startswith("**") else _plain(part)
        for part in KEPT.split(line)
    )


def _plain(text: str) -> str:
    return re.sub(r"[*|\\]|_(?!\w)", r"\\\g<0>", text)


TAG = re.compile(r"\\tag\{(.*?)\}")
OTHER_NAMES = ((r"\\dots\b", r"\\ldots"), (r"\\([bB]ig)\b", r"\\\1l"), (r"\\frac(\d)(\d)", r"\\frac{\1}{\2}"))
"""Of what docutils knows by another name."""


def mathml(translator: HTML5Translator, node: nodes.math | nodes.math_block) -> None:
    """A formula as MathML, which browsers draw without a script and without the network."""
    block = isinstance(node, nodes.math_block)
    formula, tags = TAG.sub("", node.astext()), TAG.findall(node.astext())
    for pattern, name in OTHER_NAMES:
        formula = re.sub(pattern, name, formula)
    try:
        made = tex2mathml(formula, as_block=block)
    except MathError as error:
        logging.getLogger(__name__).warning("%s: in the formula %s", error, formula, location=node)
        made = translator.encode(formula)
    number = "".join(f'<span class="eqno">({tag})</span>' for tag in tags)
    translator.body.append(f'<div class="math">{number}{made}</div>' if block else made)
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Registers how formulas are drawn, and the reading of docstrings before napoleon's."""
    app.add_html_math_renderer("mathml", (mathml, None), (mathml, None))
    app.connect("autodoc-process-docstring", to_restructured_text, priority=1)
