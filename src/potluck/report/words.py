"""Numbers as people read them."""

from collections.abc import Mapping

from potluck.core.words import duration, number
from potluck.events.state import RunState

__all__ = ["duration", "losses_text", "number", "percent", "scores_text"]


def percent(fraction: float) -> str:
    """0.934 as 93.4 %."""
    return f"{100 * fraction:.1f} %"


def losses_text(state: RunState) -> dict[str, str]:
    """The loss of the last step, and the mean of the last epoch: two figures that are easily taken for each other."""
    told = {}
    if state.step:
        told["last loss"] = f"{number(state.loss)} at step {state.step:,}"
    if state.epochs:
        told["mean loss"] = f"{number(state.epochs[-1].loss)} over epoch {state.epochs[-1].epoch + 1}"
    return told


def scores_text(scores: Mapping[str, float | None]) -> str:
    """Evaluations in one line: accuracies as percents."""
    parts = []
    for name, value in scores.items():
        is_share = value is not None and name.endswith("accuracy")
        words = name.replace("held_out_", "held-out ").replace("_", " ")
        parts.append(f"{words} {percent(value) if value is not None and is_share else number(value)}")
    return ", ".join(parts)
