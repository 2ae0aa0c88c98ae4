"""Small tables and single sentences: the text that stands beside figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from labkit.ui.screen import put

__all__ = ["bullets", "bundle", "say", "show"]


def show(columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> None:
    """Display a table; numbers are shown as they come, so format them before."""
    put(bundle(columns, rows, caption), raw=True)


def say(sentence: str) -> None:
    """Display one sentence so that it cannot be overlooked."""
    put({"text/html": f'<p class="verdict"><b>{escape(sentence)}</b></p>', "text/plain": sentence}, raw=True)


def bullets(sentences: Iterable[str]) -> None:
    """Display a list of sentences."""
    said = list(sentences)
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in said)
    put({"text/html": f"<ul>{items}</ul>", "text/plain": "\n".join(f"- {sentence}" for sentence in said)}, raw=True)


def bundle(columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> dict[str, str]:
    """The table as HTML and as plain text.

    >>> print(bundle(["rate", "p99"], [(50, "44 ms"), (200, "57 ms")])["text/plain"])
    rate | p99
    50   | 44 ms
    200  | 57 ms
    """
    cells = [[str(cell) for cell in row] for row in rows]
    head = f"<caption>{escape(caption)}</caption>" if caption else ""
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    head += f"<thead><tr>{names}</tr></thead>"
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in cells)
    return {"text/html": f"<table>{head}<tbody>{body}</tbody></table>", "text/plain": _plain([list(columns), *cells])}


def _plain(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
