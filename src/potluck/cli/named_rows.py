"""Prints named facts below each other: names on the left, values on the right."""

from collections.abc import Mapping

from rich.text import Text

from potluck.cli.terminal import Console


def print_rows(console: Console, rows: Mapping[str, str]) -> None:
    """Print one line for each fact, never wrapped."""
    for name, text in rows.items():
        console.print(Text(f"  {name:<11}{text}"), soft_wrap=True)
