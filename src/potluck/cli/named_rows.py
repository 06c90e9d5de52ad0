"""Facts below each other: names to the left, what they say to the right."""

from collections.abc import Mapping

from rich.text import Text

from potluck.cli.terminal import Console


def print_rows(console: Console, rows: Mapping[str, str]) -> None:
    """A line a fact, never wrapped."""
    for name, text in rows.items():
        console.print(Text(f"  {name:<11}{text}"), soft_wrap=True)
