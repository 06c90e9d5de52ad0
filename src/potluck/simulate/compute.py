"""How long simulated workers compute: their profiles, with noise, slow-downs, pauses and the host's own load."""

import numpy as np

from potluck.planning.water_filling import Numbers
from potluck.simulate.scenario import Scenario

_MOST_LOAD = 0.95


class Compute:
    """The own work of all workers of a scenario, in the order of the cluster."""

    def __init__(self, scenario: Scenario, generator: np.random.Generator) -> None:
        self._scenario = scenario
        self._generator = generator
        self._table = scenario.cluster.table
        self._spread = np.array([worker.compute.spread for worker in scenario.cluster.workers])
        self._place = {name: index for index, name in enumerate(scenario.cluster.machines)}

    def usual_s(self, shares: Numbers, step: int, num_present: int) -> Numbers:
        """Every worker's usual seconds for its share in this step."""
        return self._table.seconds(shares) * self._paces(step, num_present)[self._scenario.cluster.machine_of]

    def steps_s(self, usual_s: Numbers, num_steps: int = 1) -> Numbers:
        """Seconds of several steps, [steps, workers]: noise whose median is 1, and pauses at random."""
        shape = (num_steps, len(usual_s))
        took_s = usual_s * np.exp(self._spread * self._generator.standard_normal(shape))
        chances = self._scenario.chances
        if chances.pauses_per_h:
            pauses = self._generator.poisson(np.broadcast_to(usual_s * chances.pauses_per_h / 3600, shape))
            took_s = took_s + pauses * chances.pause_s * (usual_s > 0)
        return np.asarray(took_s)

    def _paces(self, step: int, num_present: int) -> Numbers:
        """By machine: how many times longer than in its profile work takes now."""
        pace = np.ones(len(self._place))
        for slow in self._scenario.slow_downs:
            if slow.first_step <= step <= slow.last_step:
                pace[self._place[slow.machine]] /= slow.factor
        if self._scenario.host:
            load = min(_MOST_LOAD, self._scenario.host_load_per_machine * num_present)
            pace[self._place[self._scenario.host]] /= 1 - load
        return pace
