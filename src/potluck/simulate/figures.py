"""What a simulated run amounts to, and the group that trains at a moment of it."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Figures:
    """What a simulated run amounts to."""

    num_steps: int = 0
    samples: int = 0
    seconds: float = 0.0
    work_s: float = 0.0
    """Of the last worker, summed over steps."""
    exchange_s: float = 0.0
    stall_s: float = 0.0
    """Lost when machines were lost or came."""
    possible_of: list[float] = field(default_factory=list)
    """Samples that the machines in each step could have trained alone in its time."""
    samples_of: list[int] = field(default_factory=list)
    num_plan_changes: int = 0
    num_lost: int = 0
    steps_s: list[float] = field(default_factory=list)

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def efficiency(self) -> float:
        """Samples/s as a part of the sum of solo speeds of the machines that trained."""
        return sum(self.samples_of) / sum(self.possible_of) if self.possible_of else 0.0

    def where_it_goes(self) -> str:
        """Where the time goes, in one line."""
        rest_s = max(0.0, self.seconds - self.work_s - self.exchange_s)
        parts = [self.work_s, self.exchange_s, rest_s]
        work, exchange, rest = (f"{100 * part / max(self.seconds, 1e-9):.0f} %" for part in parts)
        return (
            f"of this time {work} is the work of each step's last machine, {exchange} waiting for gradients, {rest} "
            f"machines that came or went ({self.num_lost} lost); {self.num_plan_changes} plan changes"
        )

    def as_data(self) -> dict[str, float]:
        """The JSON object for scripts."""
        return {
            "steps": self.num_steps,
            "seconds": self.seconds,
            "samples_per_s": self.samples_per_s,
            "efficiency": self.efficiency,
            "work_s": self.work_s,
            "exchange_s": self.exchange_s,
            "stall_s": self.stall_s,
            "plan_changes": self.num_plan_changes,
            "lost": self.num_lost,
        }


@dataclass(slots=True)
class GroupNow:
    """The group that trains now."""

    quorum_id: int = 0
    stall_s: float = 0.0
    """Seconds that forming it has cost and no step has counted yet."""
    num_returns: int = 0
    step_s: float | None = None
    """The last step, without stalls."""
    next_probe_s: float = 0.0
