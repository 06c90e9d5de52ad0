"""A table whose long lines wrap: Streamlit's own tables cut long lines off, and interpret Markdown in them."""

from collections.abc import Iterable, Sequence
from html import escape

_CELL = "padding: 0.3rem 0.8rem 0.3rem 0; text-align: left; vertical-align: top"
_NARROW = f"{_CELL}; white-space: nowrap"
_WIDE = f"{_CELL}; width: 100%; overflow-wrap: anywhere"


def wrapped_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """HTML of a table; texts are escaped, and the last column takes the remaining width."""
    styles = [*[_NARROW] * (len(headings) - 1), _WIDE]

    def line(tag: str, cells: Sequence[str]) -> str:
        inside = (f'<{tag} style="{style}">{escape(text)}</{tag}>' for style, text in zip(styles, cells, strict=True))
        return f"<tr>{''.join(inside)}</tr>"

    body = "".join(line("td", cells) for cells in rows)
    return f'<table style="width: 100%"><thead>{line("th", headings)}</thead><tbody>{body}</tbody></table>'
