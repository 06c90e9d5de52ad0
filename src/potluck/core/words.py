"""Formats numbers, durations and names for people."""

from collections.abc import Sequence

TUNED = "tuned for this machine"
"""How the notice of a machine's tuning begins, after the machine's name."""


def number(value: float | None) -> str:
    """A loss or a score with four decimals; None prints as not a number."""
    return "not a number" if value is None else f"{value:.4f}"


def duration(seconds: float) -> str:
    """A length of time in its two largest units."""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def listed(words: Sequence[str]) -> str:
    """Names joined for a sentence: rosa; rosa and lily; rosa, lily and fern."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def counted(count: int, noun: str, plural: str = "") -> str:
    """A count with its noun: 1 epoch, 2 epochs, 1,280 samples; `plural` for nouns that need more than an s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
