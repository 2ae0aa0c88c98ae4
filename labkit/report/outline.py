"""The title of a report and its list of contents."""

from __future__ import annotations

import re

from bs4 import BeautifulSoup, Tag
from nbformat import NotebookNode

__all__ = ["add_outline", "take_title"]

_TITLE = re.compile(r"^\s*#\s+(.+?)\s*#*\s*(?:\n|$)")
_MARKS = re.compile(r"[*_`]{1,3}(\S(?:.*?\S)?)[*_`]{1,3}")


def take_title(notebook: NotebookNode) -> str:
    r"""The first heading of the first markdown cell, taken out of it; empty if it does not begin with one.

    >>> from nbformat.v4 import new_markdown_cell, new_notebook
    >>> notebook = new_notebook(cells=[new_markdown_cell("# The *curve*\nWhat a batch costs.")])
    >>> take_title(notebook), notebook.cells[0].source
    ('The curve', 'What a batch costs.')
    """
    cell = next((cell for cell in notebook.cells if cell.cell_type == "markdown"), None)
    match = _TITLE.match(cell.source) if cell is not None else None
    if cell is None or match is None:
        return ""
    cell.source = cell.source[match.end() :].lstrip()
    return _MARKS.sub(r"\1", match.group(1))


def add_outline(html: str) -> str:
    """Give every heading an id of its own, and fill the page's `nav` with links to them."""
    page = BeautifulSoup(html, "html.parser")
    headings = page.select("main h2, main h3")
    _name_apart(headings)
    nav = page.find("nav")
    if isinstance(nav, Tag) and len(headings) > 2:
        nav.append(_element(page, "p", "Contents"))
        contents = page.new_tag("ol")
        for heading in headings:
            entry = page.new_tag("li", attrs={"class": "deep"} if heading.name == "h3" else {})
            entry.append(_element(page, "a", heading.get_text(" ", strip=True), href=f"#{heading['id']}"))
            contents.append(entry)
        nav.append(contents)
    return str(page)


def _name_apart(headings: list[Tag]) -> None:
    seen: dict[str, int] = {}
    for heading in headings:
        slug = re.sub(r"[^\w]+", "-", heading.get_text(" ", strip=True).lower()).strip("-") or "part"
        seen[slug] = seen.get(slug, 0) + 1
        heading["id"] = slug if seen[slug] == 1 else f"{slug}-{seen[slug]}"


def _element(page: BeautifulSoup, name: str, text: str, **attributes: str) -> Tag:
    element = page.new_tag(name, attrs=dict(attributes))
    element.string = text
    return element
