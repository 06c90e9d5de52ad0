"""Numbers as people read them."""

from collections.abc import Mapping


def percent(fraction: float) -> str:
    """0.934 as 93.4 %."""
    return f"{100 * fraction:.1f} %"


def number(value: float | None) -> str:
    """A loss or a score."""
    return "not a number" if value is None else f"{value:.4f}"


def duration(seconds: float) -> str:
    """A length of time in its two largest units."""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def scores_text(scores: Mapping[str, float | None]) -> str:
    """Evaluations in one line: accuracies as percents."""
    parts = []
    for name, value in scores.items():
        is_share = value is not None and name.endswith("accuracy")
        words = name.replace("held_out_", "held-out ").replace("_", " ")
        parts.append(f"{words} {percent(value) if value is not None and is_share else number(value)}")
    return ", ".join(parts)
