"""Proofs in the page: passages of docs/ with formulas as MathML, and docstrings of modules."""

import html
import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

from constructions.ledger import graph

DEEPER = 2
"""Headings of docs/ are so much deeper here."""


@dataclass
class Proofs:
    """What stands in the page: pages of docs/ and docstrings, and the anchors of passages in them.

    pages: (name, title, HTML). docstrings: (module, text). anchors: by passage, as nodes name them.
    """

    pages: list[tuple[str, str, str]] = field(default_factory=list)
    docstrings: list[tuple[str, str]] = field(default_factory=list)
    anchors: dict[str, str] = field(default_factory=dict)


def gather(passages: Iterable[str], root: Path | None) -> Proofs:
    """All that the passages name; of docs/ only if there is a root."""
    out = Proofs()
    named = sorted(set(passages))
    files = sorted({p.partition(", ")[0] for p in named if p.startswith("docs/")}) if root is not None else []
    pages = [file for file in files if root is not None and (root / file).is_file()]
    for file in pages:
        assert root is not None
        text = (root / file).read_text(encoding="utf-8")
        out.pages.append((Path(file).stem, _title(text), rendered(text, file, {Path(p).name for p in pages})))
    for passage in named:
        if not passage.startswith("docs/"):
            out.docstrings.append((passage, inspect.cleandoc(import_module(passage).__doc__ or "")))
            out.anchors[passage] = f"proof-{passage}"
        elif root is not None and (heading := graph.heading(passage, root)) is not None:
            out.anchors[passage] = anchor(passage.partition(", ")[0], heading)
    return out


def anchor(file: str, heading: str) -> str:
    """The id of a heading of a file of docs/."""
    slug = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
    return f"proof-{Path(file).stem}-{slug}"


def _title(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")


def rendered(text: str, file: str, pages: set[str]) -> str:
    """A page of docs/ as HTML: headings with ids, formulas as MathML, links to other pages in the report kept."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    dollarmath_plugin(markdown, renderer=formula, double_inline=True)
    tokens = markdown.parse(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))
    seen: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + DEEPER)}"
        if token.type == "heading_open":
            name = anchor(file, tokens[i + 1].content)
            seen[name] = seen.get(name, 0) + 1
            token.attrSet("id", name if seen[name] == 1 else f"{name}-{seen[name]}")
        for child in token.children or ():
            if child.type == "link_open":
                _retarget(child, pages)
            elif child.type == "image":
                child.type, child.content = "text", f"[picture: {child.content}]"
    return markdown.renderer.render(tokens, markdown.options, {})


def _retarget(link: Any, pages: set[str]) -> None:
    """Links to pages in the report go there; others, of files that are not, nowhere."""
    target = str(link.attrGet("href"))
    name = Path(target.partition("#")[0]).name
    if name in pages:
        link.attrSet("href", f"#proof-page-{Path(name).stem}")
    elif not target.startswith(("https://arxiv.org/", "https://doi.org/")):
        link.tag = "span"
        link.attrs = {}


def formula(content: str, options: dict[str, Any]) -> str:
    """A TeX formula as MathML; as it is written if it cannot be read."""
    display = bool(options["display_mode"])
    try:
        plain = re.sub(r"\\tag\{(.*?)\}", r"\\qquad (\1)", content)
        return convert(plain, display="block" if display else "inline")
    except Exception:  # latex2mathml raises errors of many kinds
        return f"<code>{html.escape(content)}</code>"
