"""Lines about a run's plans in its display: each change of the machines' shares, at most one line every ten seconds."""

from potluck.events.progress_lines import machine_shares, plan_line
from potluck.events.types import PlanChanged

_EVERY_S = 10.0


class PlanLines:
    """The newest plan whose shares have not been shown. Plans that replace each other quickly become one line."""

    def __init__(self) -> None:
        self._shown: dict[str, int] = {}
        self._shown_at = float("-inf")
        self._newest: PlanChanged | None = None

    def note(self, plan: PlanChanged) -> None:
        """Take a plan that holds from now on; one without a reason brings only newer predictions."""
        if plan.reason or not self._shown:
            self._newest = plan

    def due(self, now: float) -> list[str]:
        """The line to print at this moment, if there is one: a plan for several machines with other shares."""
        if self._newest is None or now - self._shown_at < _EVERY_S:
            return []
        plan, self._newest = self._newest, None
        shares = machine_shares(plan)
        if shares == self._shown or len({*shares, *self._shown}) < 2:
            return []
        line = plan_line(plan, self._shown)
        self._shown, self._shown_at = shares, now
        return [line]
