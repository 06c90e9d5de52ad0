"""The loop of a simulated run: steps in virtual time, plans by the real Replanner, losses, returns and the bench."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from potluck.core.errors import PlanError
from potluck.events.types import AnyEvent, BackendChosen, GroupChanged, MachineBenched, Notice
from potluck.measuring.sources import exchange_of
from potluck.planning.bench_rule import BenchTerms, least_gain_after, steps_left_of
from potluck.planning.codes import CODES, INT4
from potluck.planning.exchanges import RunTerms
from potluck.planning.measured_exchange import RingMeasurement
from potluck.planning.replanning.exchange_choice import ExchangeChoice, exchange_for
from potluck.planning.replanning.proposal import Proposal
from potluck.planning.replanning.replanner import Replanner
from potluck.planning.replanning.returning import consider_return, machine_returns
from potluck.planning.replanning.setting import GroupSetting, WorkerIntroduction
from potluck.planning.sites import find_sites
from potluck.planning.split import split_by_shares
from potluck.planning.water_filling import Numbers
from potluck.simulate.compute import Compute
from potluck.simulate.exchanging import Exchanging
from potluck.simulate.figures import Figures, GroupNow
from potluck.simulate.group_costs import COMMIT_S, forming_s, join_s, loss_s
from potluck.simulate.losses import Losses
from potluck.simulate.network import Network
from potluck.simulate.observing import make_observer
from potluck.simulate.scenario import Scenario
from potluck.simulate.writing import RunWriter, SimulatedStep

_PROBE_EVERY_S = 10.0  # as the engine's benched machines
_MANY, _PROBE_MANY_EVERY_S = 64, 60.0  # of many benched machines one is probed at a time, and more seldom
_SLOWEST_BYTES_PER_S = 1e9  # for machines whose link nobody measured


class Simulation:
    """One run. Workers are known by their places in the scenario's cluster."""

    def __init__(self, scenario: Scenario, writer: RunWriter | None = None) -> None:
        generator = np.random.default_rng(scenario.seed)
        self.figures = Figures()
        self._scenario = scenario
        self._cluster = scenario.cluster
        self._writer = writer
        self._compute = Compute(scenario, generator)
        self._exchanging = Exchanging(scenario.cluster, Network(scenario.cluster, scenario.wires, generator))
        self._observer = make_observer(scenario.cluster.workers, is_cold=scenario.wanted.is_cold)
        self._replanner = Replanner()
        self._choice = ExchangeChoice(mode="exact", reason="")
        self._members = np.arange(len(scenario.cluster.workers))
        self._benched: dict[str, Proposal] = {}
        """By benched machine: the plan that benched it."""
        self._away: dict[str, float] = {}
        """By lost machine: when it comes back, by the run's clock."""
        self._losses = Losses(scenario, generator)
        self._group = GroupNow()
        names = [worker.name for worker in scenario.cluster.workers]
        self._order = np.array(sorted(range(len(names)), key=names.__getitem__))

    def run(self) -> Figures:
        """Simulate all steps."""
        self._form(stall_s=0.0)
        while self.figures.num_steps < self._scenario.wanted.num_steps:
            self._pass_time()
            num_steps = self._num_steps_next()
            self._advance(num_steps)
        return self.figures

    @property
    def largest_ring(self) -> RingMeasurement | None:
        """What the run measured of the exchange, as it would keep it for the next run."""
        return self._replanner.largest_ring

    # The group

    def _form(self, *, stall_s: float) -> None:
        """Let the present workers form a group, with a plan from what they know."""
        wanted, step = self._scenario.wanted, self.figures.num_steps
        away = {*self._away, *self._benched}
        workers = self._cluster.workers
        self._members = np.array([place for place in self._order.tolist() if workers[place].machine not in away])
        self._observer.forget_waits()
        setting = self._setting(wanted.exchange if wanted.exchange in CODES else "exact")
        if wanted.exchange not in CODES and len(self._members) > 1:
            self._choice = self._choose(setting)
            code = self._choice.mode if self._choice.mode in CODES else INT4.name
            setting = replace(setting, exchange=exchange_of(setting.exchange.num_bytes, code))
        elif wanted.exchange in CODES:
            self._choice = ExchangeChoice(mode=wanted.exchange, reason="")
        before = self._group
        self._group = GroupNow(before.quorum_id + 1, stall_s, before.num_returns, before.step_s, before.next_probe_s)
        self._adopt(self._replanner.formed(setting, step))

    def _choose(self, setting: GroupSetting) -> ExchangeChoice:
        """The mode of this group, as the engine chooses it: a run that has begun in rounds goes on in rounds."""
        wanted, terms = self._scenario.wanted, self._terms()
        try:
            return exchange_for(setting, wanted.exchange, terms, wanted.loss_price)
        except PlanError:
            if not self.figures.num_steps:
                raise
            sites = find_sites([machine for _, machine in setting.workers], setting.pairs)
            return replace(self._choice, warm_up_steps=terms.warm_up, islands=sites)

    def _setting(self, code: str) -> GroupSetting:
        wanted, workers = self._scenario.wanted, self._cluster.workers
        usual = np.full(len(self._members), max(1, wanted.batch // len(self._members)))
        costs = self._observer.reports(self._members, usual)
        introductions = [
            WorkerIntroduction(
                cost=cost,
                policy=wanted.policy,
                keep=wanted.keep,
                link=None if wanted.is_cold else self._cluster.links.get(workers[place].machine),
                coding_factor=workers[place].coding_factor,
                last_step=wanted.num_steps,
                re_forming_s=loss_s(len(self._members)),
                num_returns=self._group.num_returns,
            )
            for place, cost in zip(self._members.tolist(), costs, strict=True)
        ]
        named = [(workers[place].name, workers[place].machine) for place in self._members.tolist()]
        exchange = exchange_of(self._cluster.exchange.num_bytes, code)
        setting = GroupSetting.of(named, introductions, wanted.batch, exchange)
        return replace(setting, pairs={} if wanted.is_cold else self._cluster.pairs)

    def _terms(self) -> RunTerms:
        wanted = self._scenario.wanted
        return RunTerms(
            batch=wanted.batch,
            num_steps=wanted.num_steps,
            policy=wanted.policy,
            keep=wanted.keep,
            round_steps=wanted.round_steps,
            warm_up_steps=wanted.warm_up_steps,
        )

    def _adopt(self, outcome: tuple[Replanner, list[AnyEvent]]) -> None:
        """Take the replanner's new state, write its events, and let benched machines leave."""
        before = self._replanner.plan
        self._replanner, events = outcome
        self._tell(events)
        plan = self._replanner.plan
        if plan is not None and before is not None and plan.shares != before.shares:
            self.figures.num_plan_changes += plan.workers == before.workers
        benched = [event.machine for event in events if isinstance(event, MachineBenched)]
        if benched:
            in_force = self._replanner.in_force
            assert in_force is not None
            self._group.next_probe_s = self.figures.seconds + _PROBE_EVERY_S
            self._benched |= dict.fromkeys(benched, in_force)
            self._form(stall_s=forming_s(len(self._members)))

    # What happens between steps

    def _pass_time(self) -> None:
        """Losses, returns and considered returns up to now."""
        now_s, step = self.figures.seconds, self.figures.num_steps + 1
        before_step = step + self._num_steps_next()  # a loss in a round is a loss at its beginning
        due = self._losses.due(before_step, self._members, self.figures.steps_s[-1] if self.figures.steps_s else None)
        lost = {name: away_s for name, away_s in due.items() if name not in self._away}
        back = [name for name, at_s in self._away.items() if at_s <= now_s]
        if lost:
            self.figures.num_lost += len(lost)
            self._away |= {name: now_s + (1e18 if away_s is None else away_s) for name, away_s in lost.items()}
            self._benched = {name: one for name, one in self._benched.items() if name not in lost}
            heir = self._check_somebody_is_left()
            self._change("lost", left=lost, stall_s=loss_s(len(self._members)))
            self._tell(machine_returns(heir, self.figures.num_steps, None) if heir else [])
        elif back:
            for name in back:
                del self._away[name]
            rates = [link.bandwidth_bytes_per_s for name in back if (link := self._cluster.links.get(name))]
            rate = min([*rates, _SLOWEST_BYTES_PER_S])
            stall_s = join_s(len(self._members) + len(back), self._cluster.exchange.num_bytes, rate)
            self._change("joined", joined=back, stall_s=stall_s)
        else:
            self._consider_returns(now_s)

    def _check_somebody_is_left(self) -> str:
        """The fastest benched machine takes over where no other is left; with all gone the run waits for the first.

        Returns the benched machine that takes over; empty if none does.
        """
        present, heir = [name for name in self._cluster.machines if name not in self._away], ""
        if self._benched and not set(present) - self._benched.keys():
            heir = max(present, key=self._cluster.solo_speeds(self._scenario.wanted.batch).__getitem__)
            del self._benched[heir]
        if len(self._away) == len(self._cluster.machines):
            first = min(self._away, key=self._away.__getitem__)
            self.figures.seconds = max(self.figures.seconds, min(self._away[first], self.figures.seconds + 3600))
            del self._away[first]
        return heir

    def _change(self, reason: str, *, stall_s: float, left: Iterable[str] = (), joined: Iterable[str] = ()) -> None:
        self.figures.stall_s += stall_s
        self._form(stall_s=self._group.stall_s + stall_s)
        machines = {self._cluster.workers[place].machine for place in self._members.tolist()}
        change = GroupChanged(
            step=self.figures.num_steps + 1,
            num_machines=len(machines),
            reason="lost" if reason == "lost" else "joined",
            stall_s=stall_s,
            left={name: [] for name in left},
            joined={name: [] for name in joined},
            quorum_id=self._group.quorum_id,
        )
        self._tell([change])

    def _consider_returns(self, now_s: float) -> None:
        if not self._benched or now_s < self._group.next_probe_s:
            return
        is_many = len(self._cluster.workers) > _MANY
        self._group.next_probe_s = now_s + (_PROBE_MANY_EVERY_S if is_many else _PROBE_EVERY_S)
        for name in list(self._benched)[: 1 if is_many else None]:
            in_force = self._benched[name] = self._benched.pop(name)  # to the end: the next ones come first next time
            place = next(index for index, one in enumerate(self._cluster.workers) if one.machine == name)
            cost = self._observer.profile(place) or self._cluster.workers[place].compute
            terms = BenchTerms(
                steps_left=steps_left_of(self._scenario.wanted.num_steps, self.figures.num_steps),
                re_forming_s=loss_s(len(self._members)),
                least_gain=least_gain_after(self._group.num_returns),
            )
            gain = consider_return(
                in_force,
                terms,
                worker=self._cluster.workers[place].name,
                cost=cost,
                stretch=self._cluster.workers[place].alone_factor,
                others_s=self._group.step_s,
            )
            if gain is not None:
                del self._benched[name]
                self._tell(machine_returns(name, self.figures.num_steps, gain))
                self._form(stall_s=forming_s(len(self._members)))
                self._group.num_returns += 1
                return

    # Steps

    def _num_steps_next(self) -> int:
        """Steps until the next commit: those of a round after the warm-up, else 1."""
        choice, done = self._choice, self.figures.num_steps
        if choice.round_steps is None or len(self._members) < 2 or done < (choice.warm_up_steps or 0):
            return 1
        return min(choice.round_steps, self._scenario.wanted.num_steps - done)

    def _advance(self, num_steps: int) -> None:
        """One commit: a step, or the steps of a round."""
        wanted, figures = self._scenario.wanted, self.figures
        shares = self._shares()
        step = figures.num_steps + num_steps
        usual_s = self._compute.usual_s(shares, figures.num_steps + 1, len(self._members), num_steps)
        work_s = self._compute.steps_s(usual_s, num_steps).sum(0) + num_steps * COMMIT_S * (shares > 0)
        last_s, exchange_s = self._exchanging.together(self._choice, shares, work_s, num_steps)
        # As predictions have it: with shorter pauses a container's CPU quota lets a worker compute more slowly.
        least_s = num_steps * float((usual_s * self._cluster.least_factors).max())
        exchange_s = max(exchange_s, least_s - last_s)
        retry_s, self._group.stall_s = self._group.stall_s, 0.0
        seconds = last_s + exchange_s + retry_s
        self._group.step_s = (last_s + exchange_s) / num_steps
        figures.seconds += seconds
        figures.num_steps, figures.samples = step, figures.samples + num_steps * wanted.batch
        figures.work_s, figures.exchange_s = figures.work_s + last_s, figures.exchange_s + exchange_s
        figures.steps_s += [seconds / num_steps] * num_steps
        taking = shares > 0
        possible = float((num_steps * shares[taking] / work_s[taking]).sum()) * seconds
        figures.possible_of += [possible / num_steps] * num_steps
        figures.samples_of += [wanted.batch] * num_steps
        waits_s = last_s + exchange_s - work_s
        if self._writer is not None:
            whole = SimulatedStep(
                number=step,
                samples=num_steps * wanted.batch,
                seconds=seconds,
                retry_s=retry_s,
                shares=num_steps * shares,
                work_s=work_s,
                quorum_id=self._group.quorum_id,
            )
            self._writer.step(whole, figures.seconds)
        self._saw(shares, work_s / num_steps, waits_s)
        if step < wanted.num_steps:
            self._check_plan(shares, step, of_round=num_steps > 1)

    def _shares(self) -> Numbers:
        """Samples a step of every worker of the cluster."""
        names = [self._cluster.workers[place].name for place in self._members.tolist()]
        parts = split_by_shares(self._scenario.wanted.batch, self._replanner.shares(names))
        shares = np.zeros(len(self._cluster.workers), dtype=np.int64)
        shares[self._members] = [len(part) for part in parts]
        return shares

    def _saw(self, shares: Numbers, work_s: Numbers, waits_s: Numbers) -> None:
        mine = self._members
        self._observer.saw(mine, shares[mine], work_s[mine], waits_s[mine])

    def _check_plan(self, shares: Numbers, step: int, *, of_round: bool) -> None:
        if self._replanner.checks_next(of_round=of_round):
            costs = self._observer.reports(self._members, shares[self._members])
        else:
            costs = []
        self._adopt(self._replanner.committed(costs, step, of_round=of_round))

    def _tell(self, events: list[AnyEvent]) -> None:
        if self._writer is not None and events:
            self._writer.tell(events, self.figures.seconds, self._members)

    def closing_events(self) -> list[AnyEvent]:
        """What every worker says once: how gradients travelled, and that nothing was trained."""
        choice = self._choice
        return [
            Notice(text="this run is simulated: machines, links and times are computed, and nothing is trained"),
            BackendChosen(
                step=1,
                backend="simulated",
                reason="nothing is sent",
                exchange=choice.mode,
                exchange_reason=choice.reason,
                warm_up_steps=choice.warm_up_steps or 0,
                islands=[list(island) for island in choice.islands] if choice.mode == "islands" else [],
            ),
        ]


def simulate(scenario: Scenario, writer: RunWriter | None = None) -> Figures:
    """Simulate a run; with a writer its events are written."""
    return Simulation(scenario, writer).run()
