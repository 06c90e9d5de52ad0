"""The training state at the beginning of a round, while this worker's own state moves on in local steps."""

import copy
from dataclasses import dataclass
from typing import Any

from potluck.engine.compute.outer_step import OuterStep


@dataclass(frozen=True, slots=True)
class RoundStart:
    """What of a round's beginning is kept: the global parameters, schedules, learning rates and the loss scale.

    The optimizer's moments are not kept: they are this worker's own in rounds, and those of a later step serve a peer
    as well. The committed step does not change inside a round.
    """

    outer: OuterStep
    small: dict[str, Any]
    groups: Any

    @classmethod
    def of(cls, state: dict[str, Any], outer: OuterStep) -> "RoundStart":
        """The beginning of a round, from the training state at that time."""
        small = {name: copy.deepcopy(state[name]) for name in ("schedulers", "precision")}
        return cls(outer, small, copy.deepcopy(state["optimizer"]["param_groups"]))

    def instead_of(self, state: dict[str, Any]) -> dict[str, Any]:
        """The training state of the round's beginning, made from one inside the round."""
        optimizer = {**state["optimizer"], "param_groups": self.groups}
        return {**state, **self.small, "optimizer": optimizer, "model": self.outer.global_state(state["model"])}
