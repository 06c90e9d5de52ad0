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

    def usual_s(self, shares: Numbers, step: int, num_present: int, num_steps: int = 1) -> Numbers:
        """Every worker's usual seconds for its share in this step, or on average in the steps of a round from it on."""
        paces = self._paces(range(step, step + num_steps), num_present)
        return self._table.seconds(shares) * paces[self._scenario.cluster.machine_of]

    def steps_s(self, usual_s: Numbers, num_steps: int = 1) -> Numbers:
        """Seconds of several steps, [steps, workers]: noise whose median is 1, and pauses at random."""
        shape = (num_steps, len(usual_s))
        took_s = usual_s * np.exp(self._spread * self._generator.standard_normal(shape))
        chances = self._scenario.chances
        if chances.pauses_per_h:
            pauses = self._generator.poisson(np.broadcast_to(usual_s * chances.pauses_per_h / 3600, shape))
            took_s = took_s + pauses * chances.pause_s * (usual_s > 0)
        return np.asarray(took_s)

    def _paces(self, steps: range, num_present: int) -> Numbers:
        """By machine: how many times longer than in its profile work takes, on average over these steps."""
        by_step = np.ones((len(steps), len(self._place)))
        for slow in self._scenario.slow_downs:
            first, last = max(0, slow.first_step - steps.start), max(0, slow.last_step + 1 - steps.start)
            by_step[first:last, self._place[slow.machine]] /= slow.factor
        pace = by_step.mean(axis=0)
        if self._scenario.host:
            load = min(_MOST_LOAD, self._scenario.host_load_per_machine * num_present)
            pace[self._place[self._scenario.host]] /= 1 - load
        return np.asarray(pace)
