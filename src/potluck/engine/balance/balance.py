"""One worker's side of the plan: it sends its own measured cost, and receives the costs of all workers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from potluck.engine.balance.kept_profile import KeptProfile
from potluck.engine.balance.lone import Lone
from potluck.engine.balance.profile_memory import ProfileMemory
from potluck.engine.balance.worker_cost import WorkerCost
from potluck.events.types import AnyEvent, MachineBenched, Notice, StepTiming
from potluck.measuring.line_fit import Timed
from potluck.planning.bench_rule import RE_FORMING_S, BenchTerms, least_gain_after, steps_left_of
from potluck.planning.plan import make_plan
from potluck.planning.policies import find_policy
from potluck.planning.replanning.announcements import is_written_by, plan_writers
from potluck.planning.replanning.cost_report import CostReport
from potluck.planning.replanning.replanner import Outcome, Replanner
from potluck.planning.replanning.returning import FasterWith, consider_return, heir_of, machine_returns
from potluck.planning.replanning.setting import GroupSetting, WorkerIntroduction


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The run's options for splitting the work."""

    policy: str = "dynamic"
    keep: tuple[str, ...] = ()
    """Machines that are never benched."""
    micro_batch: int | None = None
    """The user's limit for a micro-batch. The fit needs it, because every micro-batch has the fixed cost of a pass."""

    def __post_init__(self) -> None:
        find_policy(self.policy)


class Balance:
    """Measures this worker's cost, and gives the costs of all workers to its Replanner."""

    def __init__(
        self,
        wishes: Wishes,
        tell: Callable[[AnyEvent], None],
        memory: ProfileMemory,
        show: Callable[[AnyEvent], None] = lambda _: None,
    ) -> None:
        """`tell` writes an event; `show` takes in one that other workers write."""
        self._wishes = wishes
        self.replanner = Replanner()
        self.kept = KeptProfile(memory, lambda text: tell(Notice(text=text)))
        self.last_step: int | None = None
        """The step after which the script ends training; None until that is known."""
        self.re_forming_s = 0.0
        """Seconds that the last change of the group cost this worker; 0 before the first change."""
        self._num_returns = 0
        """How often this worker came back from the bench."""
        self.lone: Lone | None = None
        """This worker's steps while all other machines are benched; None while they are not."""
        self._cost = WorkerCost(wishes.micro_batch)
        self._tell = tell
        self._show = show
        self._machine = memory.machine

    # This worker's own cost

    def recall(self, digest: str, gradient_bytes: int) -> None:
        """Start from the cost of this model that earlier runs and trials measured."""
        prior = self.kept.recall(digest, gradient_bytes)
        if prior is not None:
            self._cost.begin_with(prior)

    @property
    def memory_cap(self) -> int | None:
        """The largest micro-batch that is known to fit; None if no limit is known."""
        return self._cost.memory_cap

    def own_cost(self) -> WorkerCost:
        """A snapshot of this worker's cost, for a group that it joins."""
        return self._cost.snapshot()

    def introduction(self, fixed_share: int | None) -> WorkerIntroduction:
        """What this worker sends to a group that it joins, except its cost."""
        return WorkerIntroduction(
            share=fixed_share,
            policy=self._wishes.policy,
            keep=self._wishes.keep,
            link=self.kept.link,
            peers=self.kept.peers,
            coding_factor=self.kept.coding_factor,
            last_step=self.last_step,
            re_forming_s=self.re_forming_s,
            num_returns=self._num_returns,
            kept_ring=self.kept.ring,
        )

    def report(self, *, of_round: bool = False) -> CostReport:
        """The cost report that this worker sends with its gradients, or at the end of a round."""
        return self._cost.report(is_fresh=self.replanner.checks_next(of_round=of_round))

    def timed(self, samples: int, num_micro_batches: int, timing: StepTiming, cpu_s: float = 0.0) -> None:
        """Record a committed step of this worker; `cpu_s` is the processor time of its own work."""
        if not samples:
            return
        self._cost.committed(samples, num_micro_batches, timing, cpu_s)
        if self.lone is not None:
            self.lone.add(samples, timing.step_s)
        if self.kept.is_due:
            self.keep()

    def keep(self) -> None:
        """Store what this run has measured so far, for later runs."""
        cost = self._cost
        self.kept.keep(
            cost.profile,
            cost.num_timed,
            self.replanner.largest_ring,
            stretch=cost.stretch or 1.0,
            overhead_s=cost.overhead_s,
        )

    # The plan that follows from the costs of all workers

    def formed(self, setting: GroupSetting, step: int) -> None:
        """Plan for a group that has formed after `step` committed steps, from the introductions of its members."""
        is_ring = len(setting.workers) > 1
        self._cost.forget_group(is_ring=is_ring)
        if is_ring:
            self.lone = None
        self._adopt(self.replanner.formed(setting, step), step)

    def committed(self, costs: Sequence[CostReport], step: int, *, of_round: bool = False) -> None:
        """Check the plan after `step` committed steps, by the costs of all workers; a new plan is for the next step."""
        self._adopt(self.replanner.committed(costs, step, of_round=of_round), step)

    def distrust(self) -> None:
        """Use only equal shares from now on: workers have computed different plans."""
        self.replanner = self.replanner.distrusted()

    def _adopt(self, outcome: Outcome, step: int) -> None:
        self.replanner, events = outcome
        setting = self.replanner.setting
        writers = plan_writers(machine for _, machine in setting.workers) if events and setting else frozenset()
        for event in events:
            write = self._tell if is_written_by(self._machine, event, writers) else self._show
            write(event)
        if any(isinstance(event, MachineBenched) for event in events):
            self._note_alone(step)

    def _note_alone(self, step: int) -> None:
        """If a bench decision leaves only this machine, record its steps alone for a line at the end of the run."""
        assert self.replanner.in_force is not None
        cluster, plan = self.replanner.in_force.cluster, self.replanner.in_force.plan
        if {*cluster.machines} - {*plan.benched} != {self._machine}:
            return
        together_s = self._cost.step_s
        if together_s is None:
            whole = make_plan(cluster, plan.prediction.samples, plan.policy, cluster.machines)
            together_s = whole.prediction.step_s
        self.lone = Lone(
            machine=self._machine, benched=plan.benched, together_samples_per_s=plan.prediction.samples / together_s
        )
        self._tell(Notice(text=f"{self._machine} trains alone from step {step + 1} on"))

    # On the bench

    @property
    def is_heir(self) -> bool:
        """Whether this benched machine is the one that keeps a recent copy of the only machine that trains."""
        assert self.replanner.in_force is not None
        return heir_of(self.replanner.in_force) == self._machine

    def probed(self, name: str, timed: Timed, step: int, others_s: float | None, copy_s: float) -> FasterWith | None:
        """Record a probe step of this benched worker; return the gain if its machine should come back, else None.

        `others_s`: seconds of a step of the workers that train, if known. `copy_s`: seconds of copying their state.
        """
        assert self.replanner.in_force is not None
        self._cost.probed(timed)
        profile = self._cost.profile
        if profile is None:
            return None
        terms = BenchTerms(
            steps_left=steps_left_of(self.last_step, step),
            re_forming_s=(self.re_forming_s or RE_FORMING_S) + copy_s,
            least_gain=least_gain_after(self._num_returns),
        )
        stretch = self._cost.stretch
        return consider_return(
            self.replanner.in_force, terms, worker=name, cost=profile, stretch=stretch, others_s=others_s
        )

    def returned(self, step: int, gain: FasterWith | None) -> None:
        """Write the events of this machine's return: steps become faster or, without a gain, no other is left."""
        if gain is not None:
            self._num_returns += 1
        for event in machine_returns(self._machine, step, gain):
            self._tell(event)
