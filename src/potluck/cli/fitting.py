"""Fits tables to narrow terminals: no cell is ever shortened; columns that matter less are dropped first."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from potluck.cli.terminal import Console

_ANY_WIDTH = 100_000


def print_table(console: Console, table: Table, spare: Sequence[str] = ()) -> None:
    """Print a table so that it fits the terminal; in full width if the output is not a terminal."""
    if console.is_terminal:
        console.print(fitted(console, table, spare), soft_wrap=True)
        return
    before = console.width
    console.width = max(before, natural_width(console, table))
    try:
        console.print(table)
    finally:
        console.width = before


def fitted(console: Console, table: Table, spare: Sequence[str] = ()) -> RenderableType:
    """The table if it fits the console's width, else without spare columns, else as a block of lines for each row.

    `spare`: headings of columns that may be dropped, in this order.
    """
    for num_dropped in range(len(spare) + 1):
        narrower = _without(table, spare[:num_dropped])
        width = natural_width(console, narrower)
        if width <= console.width:
            narrower.width = width  # else rich pads each line to the terminal's width when it is printed unwrapped
            return narrower
    return _blocks(console, _without(table, spare))


def natural_width(console: Console, table: Table) -> int:
    """How wide the table is when nothing is shortened."""
    return max(1, Measurement.get(console, console.options.update(max_width=_ANY_WIDTH), table).maximum)


def _without(table: Table, headings: Sequence[str]) -> Table:
    kept = [column for column in table.columns if str(column.header) not in headings]
    narrower = Table(box=None, pad_edge=False, header_style="bold", title=table.title, title_justify="left")
    for column in kept:
        narrower.add_column(column.header, justify=column.justify, no_wrap=column.no_wrap, overflow=column.overflow)
    for cells in zip(*(column.cells for column in kept), strict=True):
        narrower.add_row(*cells)
    return narrower


def _blocks(console: Console, table: Table) -> Group:
    """The first cell of a row as a title, the others below it, each behind its heading."""
    headings = [_text(console, column.header) for column in table.columns[1:]]
    widest = max((heading.cell_len for heading in headings), default=0)
    lines: list[RenderableType] = [] if table.title is None else [_text(console, table.title)]
    for first, *cells in zip(*(column.cells for column in table.columns), strict=True):
        title = _text(console, first)
        title.stylize("bold")
        lines.append(title)
        for heading, cell in zip(headings, cells, strict=True):
            value = _text(console, cell)
            if value.plain:
                gap = " " * (widest - heading.cell_len + 2)
                lines.append(Text.assemble("  ", heading, gap, value))
    return Group(*lines)


def _text(console: Console, cell: RenderableType) -> Text:
    return cell.copy() if isinstance(cell, Text) else console.render_str(str(cell), highlight=False)
