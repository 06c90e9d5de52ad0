"""Detects a loss that is not finite or far above its first values; reports it once, with advice."""

import math
from statistics import median

from potluck.core.words import number
from potluck.events.state import RunState
from potluck.events.types import LossDiverged, finite

_NUM_FIRST = 10
_MANY_TIMES = 1000.0
_NUM_ABOVE = 20


class LossWatch:
    """Checks the loss of every committed step.

    A loss diverges when it is not a finite number, or when it has been above a thousand times the median of the first
    ten steps for twenty steps in a row.
    """

    def __init__(self) -> None:
        self._first: list[float] = []
        self._num_above = 0
        self._has_diverged = False

    def look(self, step: int, loss: float) -> LossDiverged | None:
        """Check the loss of one step; return an event when the loss has diverged, once."""
        limit = self._limit()
        if not math.isfinite(loss):
            return self._diverged(step, loss, limit)
        if limit is None:
            self._first.append(loss)
            return None
        self._num_above = self._num_above + 1 if loss > limit else 0
        return self._diverged(step - _NUM_ABOVE + 1, loss, limit) if self._num_above == _NUM_ABOVE else None

    def _limit(self) -> float | None:
        if len(self._first) < _NUM_FIRST:
            return None
        return _MANY_TIMES * abs(median(self._first)) or None  # a median of zero gives no limit

    def _diverged(self, since: int, loss: float, limit: float | None) -> LossDiverged | None:
        if self._has_diverged:
            return None
        self._has_diverged = True
        return LossDiverged(step=since, loss=finite(loss), limit=limit)


def advice(event: LossDiverged) -> str:
    """One line for the user: what has diverged, and what to try."""
    text = f"the loss is not a number since step {event.step}: the parameters are spoiled, and no later step mends them"
    if event.loss is not None and event.limit is not None:
        text = (
            f"the loss is above {number(event.limit)} since step {event.step}, a thousand times what it was in the "
            "first steps"
        )
    return (
        f"{text}. Try a lower learning rate (--lr, or lr=... of your optimizer), clip gradients "
        "(run.clip_gradients(1.0)), or look at the samples of that step"
    )


def ending(state: RunState) -> str:
    """The message about a diverged loss at the end of a run; empty if the loss has not diverged."""
    if not state.diverged_since:
        return ""
    what = "is not a number" if state.loss is None else f"is above {number(state.diverged_limit)}"
    return f"the loss {what} since step {state.diverged_since}"


class Diverged(SystemExit):
    """Training has ended with a diverged loss; the process exits with the code DIVERGED."""
