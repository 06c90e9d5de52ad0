"""Which machines a simulated run loses, and when: those that the scenario names, and others at random."""

import numpy as np

from potluck.planning.water_filling import Numbers
from potluck.simulate.scenario import Scenario


class Losses:
    """The losses that are still to come."""

    def __init__(self, scenario: Scenario, generator: np.random.Generator) -> None:
        self._workers = scenario.cluster.workers
        self._chances = scenario.chances
        self._left = list(scenario.losses)
        self._generator = generator

    def due(self, before_step: int, members: Numbers, last_step_s: float | None) -> dict[str, float | None]:
        """Machines that are lost before this step, and for how many seconds; None: for good.

        `members`: the places of the workers that train. `last_step_s`: of the last step; None before the first.
        """
        named = [one for one in self._left if one.step < before_step]
        self._left = [one for one in self._left if one not in named]
        return {one.machine: one.away_s for one in named} | self._at_random(members, last_step_s or 0.0)

    def _at_random(self, members: Numbers, last_step_s: float) -> dict[str, float | None]:
        if not self._chances.losses_per_h or not last_step_s:
            return {}
        expected = len(members) * self._chances.losses_per_h * last_step_s / 3600
        count = min(int(self._generator.poisson(expected)), len(members) - 1)
        places = self._generator.choice(members, count, replace=False).tolist() if count else []
        return {self._workers[place].machine: self._chances.away_s for place in places}
