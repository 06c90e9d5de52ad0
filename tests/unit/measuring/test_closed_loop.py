"""Fit, plan and change together, on simulated machines: how fast it settles, and how still it then stands."""

import random
import statistics

import pytest

from potluck.measuring.compute_fit import ComputeFit, profile_from_trial
from potluck.measuring.line_fit import Timed
from potluck.planning.cluster import Cluster, Worker
from potluck.planning.costs import ComputeProfile, Exchange, LinkProfile
from potluck.planning.plan import make_plan, predict
from potluck.planning.rebalance import Setting, Told, rebalance

BATCH = 128
CLUSTERS = {
    "pair": (1.0, 0.3),
    "laptops": (0.8, 0.4, 0.2),
    "mixed": (0.8353, 0.5873, 0.1468, 0.1306),
    "twins": (0.9, 0.9),
}
EXCHANGE = Exchange(num_bytes=200_000, num_messages=2)


class Simulated:
    """Machines whose steps cost what a fraction of a core costs, give or take a few percent."""

    def __init__(self, cores, noise=0.03, seed=0):
        self.costs = [ComputeProfile(fixed_s=0.012 / part, per_sample_s=0.0018 / part) for part in cores]
        self.names = [(f"m{index}-0", f"m{index}") for index in range(len(cores))]
        self.links = {machine: LinkProfile(latency_s=1e-4, bandwidth_bytes_per_s=1.2e8) for _, machine in self.names}
        self.setting = Setting(batch=BATCH, policy="dynamic", exchange=EXCHANGE, links=self.links)
        self.fits = [ComputeFit() for _ in cores]
        self.generator = random.Random(seed)
        self.noise = noise
        self.plan = None
        self.shares = [BATCH // len(cores)] * len(cores)
        self.shares[0] += BATCH - sum(self.shares)
        self.num_changes = 0

    def step(self):
        """One step, and what everybody concludes; the step's true time without noise."""
        work_s = [
            cost.seconds(share) * self.generator.lognormvariate(0, self.noise)
            for cost, share in zip(self.costs, self.shares, strict=True)
        ]
        for fit, share, seconds in zip(self.fits, self.shares, work_s, strict=True):
            fit.add(Timed(share, seconds))
        told = [
            Told.of(fit.profile(), share, max(work_s) - seconds + 0.004)
            for fit, share, seconds in zip(self.fits, self.shares, work_s, strict=True)
        ]
        decision = rebalance(self.setting, self.names, told, self.plan)
        self.num_changes += self.plan is not None and decision.plan.shares != self.plan.shares
        self.plan, self.shares = decision.plan, list(decision.plan.shares)
        return self.distance()

    def distance(self):
        """How much longer a step of the plan in force is than the best one."""
        true = Cluster(
            workers=tuple(
                Worker(name=name, machine=machine, compute=cost)
                for (name, machine), cost in zip(self.names, self.costs, strict=True)
            ),
            links=self.links,
            exchange=EXCHANGE,
        )
        return predict(true, self.shares).step_s / make_plan(true, BATCH).prediction.step_s - 1


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("seed", range(2))
def test_from_a_cold_start_it_settles_within_ten_steps_and_stands_still(name, seed):
    machines = Simulated(CLUSTERS[name], seed=seed)
    distances = [machines.step() for _ in range(60)]
    assert statistics.median(distances[8:14]) < 0.05
    assert max(distances[20:]) < 0.08
    early = machines.num_changes
    for _ in range(60):
        machines.step()
    assert machines.num_changes - early <= 1
    assert machines.num_changes <= 4


@pytest.mark.parametrize("seed", range(2))
def test_a_machine_slowed_to_a_third_loses_work_and_gets_it_back(seed):
    machines = Simulated(CLUSTERS["laptops"], seed=seed)
    usual = list(machines.costs)
    for _ in range(40):
        machines.step()
    machines.costs[0] = usual[0].slowed(3.0)
    distances = [machines.step() for _ in range(40)]
    assert max(distances[20:]) < 0.07
    machines.costs[0] = usual[0]
    distances = [machines.step() for _ in range(40)]
    assert max(distances[20:]) < 0.07


def test_nobody_concludes_anything_before_all_costs_are_known():
    setting = Simulated(CLUSTERS["pair"]).setting
    unknown = Told.of(None, 0, 0.0)
    assert rebalance(setting, [("a-0", "a"), ("b-0", "b")], [unknown, unknown], None) is None


def test_a_curve_travels_as_its_line_where_the_worker_is():
    curve = profile_from_trial({size: [max(0.1, 0.01 * size)] for size in (1, 2, 4, 8, 16, 32, 64)})
    assert curve.curve
    told = Told.of(curve, 40, 0.0)
    assert told.profile.seconds(40) == pytest.approx(0.4, rel=0.01)
    assert told.profile.seconds(30) == pytest.approx(0.3, rel=0.05)
    assert Told(*map(float, told)) == told
