"""Every worker's share of the global batch, concluded by each for itself from the numbers of all."""

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from potluck.core.errors import MeasureError
from potluck.engine.experience import Experience
from potluck.engine.roster import Roster
from potluck.events.types import AnyEvent, MachineBenched, MachineUnbenched, Notice, PlanChanged, StepTiming
from potluck.measuring.compute_fit import ComputeFit
from potluck.measuring.line_fit import Timed
from potluck.planning.cluster import Cluster
from potluck.planning.costs import Exchange, LinkProfile
from potluck.planning.explain import explain_benched, seconds_text
from potluck.planning.looks import FIRST_LOOK, Look, Votes, is_settled, is_urgent, look_after
from potluck.planning.plan import BENCH_SAVES_S, Plan, describe, make_plan
from potluck.planning.policies import find_policy
from potluck.planning.rebalance import Decision, Setting, Told, rebalance
from potluck.planning.seen import RingSeen
from potluck.planning.what_if import if_kept

_TELL_EVERY = 48
_TELL_FIRST = 13
_KEEP_EVERY_S = 60.0
_NUM_WAITS = 8
_BENCH_VOTES = 5  # looks in a row


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """How a run wants its work split."""

    policy: str = "dynamic"
    keep: tuple[str, ...] = ()
    """Machines that are never benched."""
    micro_batch: int | None = None
    """The most samples at once, by hand: each piece pays what a pass costs at any size."""

    def __post_init__(self) -> None:
        find_policy(self.policy)


class Balance:
    """The plan in force on one worker. It is the same on all: made from numbers that all have."""

    def __init__(self, wishes: Wishes, tell: Callable[[AnyEvent], None], experience: Experience) -> None:
        self.wishes = wishes
        self.link: LinkProfile | None = None
        self._experience = experience
        self.plan: Plan | None = None
        self._tell = tell
        self._fit = ComputeFit(memory_cap=wishes.micro_batch)
        self._known_cap: int | None = None
        self._num_timed = 0
        self._waits_s: deque[float] = deque(maxlen=_NUM_WAITS)
        self._samples = 0
        self._told = Told.of(None, 0, 0.0)
        self._num_commits = self._num_since_news = 0
        self._change_votes, self._bench_votes = Votes(), Votes()
        self._cluster: Cluster | None = None
        self._is_trusted = True
        self._return_s = 0.0
        self._ring: RingSeen | None = None
        self._kept_at = time.monotonic()
        self._could_not_keep = False

    def recall(self, digest: str, gradient_bytes: int) -> None:
        """The model is known: begin with what earlier runs and trials showed of it."""
        stored = self._experience.recall(digest, gradient_bytes)
        if stored is not None:
            self._known_cap, self.link = stored.compute.memory_cap, stored.link
            self._fit = ComputeFit(stored.compute, self.wishes.micro_batch)

    @property
    def memory_cap(self) -> int | None:
        """The most samples at once that are known to fit."""
        return self._fit.memory_cap

    def out_of_memory(self, num_samples: int) -> int:
        """So many at once did not fit; returns how many will be tried next time."""
        self._known_cap = self._experience.halve(num_samples)
        return self._known_cap

    def keep(self) -> None:
        """Keep what this run showed so far, for the next one, or for this one if the machine is lost and comes back."""
        self._kept_at = time.monotonic()
        profile = self._fit.profile()
        if profile is None:
            return
        try:  # pieces by hand are no limit of the machine
            self._experience.keep(replace(profile, memory_cap=self._known_cap), self._num_timed, self._ring)
        except (OSError, MeasureError) as error:
            if not self._could_not_keep:
                self._could_not_keep = True
                text = f"what this run shows of the machine cannot be kept in {self._experience.home}: {error}"
                self._tell(Notice(text=f"{text}; free some space there, or set POTLUCK_HOME to another folder"))

    def introduction(self, part: int) -> Told:
        """What this worker tells a group that it joins; so many samples are a usual part there."""
        return Told.of(self._fit.profile(), self._samples or part, 0.0)

    def numbers(self) -> Told:
        """What this worker tells the others about itself; fitted anew when they will look at it."""
        if look_after(self._num_since_news):
            wait_s = statistics.median(self._waits_s) if self._waits_s else 0.0
            self._told = Told.of(self._fit.profile(), self._samples, wait_s)
        return self._told

    def timed(self, samples: int, pieces: int, timing: StepTiming) -> None:
        """One committed step of this worker."""
        if samples:
            self._samples = samples
            self._num_timed += 1
            if self._num_timed > 1:  # in its first step torch also sets itself up
                self._fit.add(Timed(samples, timing.own_s, pieces))
            self._waits_s.append(timing.exchange_wait_s)
            if time.monotonic() - self._kept_at > _KEEP_EVERY_S:
                self.keep()

    def shares(self, roster: Roster) -> list[int]:
        """Every member's share: as it was told by hand, as planned, or the same for all."""
        if roster.has_fixed_shares:
            return [1 if member.share is None else member.share for member in roster.members]
        if self.plan is not None and self.plan.workers == roster.order:
            return list(self.plan.shares)
        return [1] * len(roster.members)

    def distrust(self) -> None:
        """Workers came to different conclusions: from now on, only equal shares."""
        self._is_trusted = False
        self.plan = None

    def form(self, roster: Roster, step: int, batch: int, exchange: Exchange) -> None:
        """A group has formed: plan from what its members know of themselves; a newcomer counts as an average one."""
        self.plan, self._num_commits, self._num_since_news = None, 0, 0
        self._change_votes.reset()
        self._bench_votes.reset()
        self._waits_s.clear()
        told = [Told.read(member.told) for member in roster.members]
        self._conclude(
            roster, _with_guesses(told, batch), step, _setting(roster, batch, exchange, FIRST_LOOK), FIRST_LOOK
        )

    def committed(self, roster: Roster, told: Sequence[Told], step: int, batch: int, exchange: Exchange) -> None:
        """A step is done, and with it came everybody's numbers."""
        look = look_after(self._num_since_news)
        self._num_commits += 1
        self._num_since_news += 1
        if look is not None:
            self._conclude(roster, told, step, _setting(roster, batch, exchange, look), look)

    def _conclude(self, roster: Roster, told: Sequence[Told], step: int, setting: Setting, look: Look) -> None:
        if roster.has_fixed_shares or not self._is_trusted or not 2 <= len(roster.members) <= setting.batch:
            return
        members = [(member.name, member.machine) for member in roster.members]
        decision = rebalance(setting, members, told, self.plan)
        if decision is None:
            return
        before = self.plan
        if not self._may_bench(before, decision):
            decision = rebalance(replace(setting, keep=roster.machines), members, told, before)
            assert decision is not None
        self._note_ring(decision.ring)
        if not self._may_change(before, decision, look):
            return
        self.plan, self._cluster = decision.plan, decision.cluster
        if decision.reason:
            self._change_votes.reset()
            if is_urgent(
                decision.gain
            ):  # a machine is not what it was: look early again, at its work with another part
                self._num_since_news = 0
            self._tell_plan(roster, told, decision, step, setting.batch)
            self._tell_benched(decision, step)
        elif self._num_since_news % _TELL_EVERY == _TELL_FIRST:
            # The plan stays. What is known of it is newer, and reports hold that against what was measured.
            self._tell_plan(roster, told, decision, step, setting.batch)

    def _note_ring(self, ring: RingSeen | None) -> None:
        """The largest ring is kept: after a bench it is the one that says why."""
        if ring is not None and len(ring.machines) >= max(2, 0 if self._ring is None else len(self._ring.machines)):
            self._ring = ring

    def _may_change(self, before: Plan | None, decision: Decision, look: Look) -> bool:
        is_wanted = bool(decision.reason)
        is_agreed = self._change_votes.count(look.votes, is_wanted=is_wanted)
        return before is None or not is_wanted or is_agreed or is_urgent(decision.gain)

    def _may_bench(self, before: Plan | None, decision: Decision) -> bool:
        """Leaving the ring costs seconds: it must save much of a step, at several looks in a row."""
        plan = decision.plan
        if not plan.benched:
            self._bench_votes.reset()
            return True
        if before is None or not is_settled(self._num_commits):
            return False
        now_s = describe(decision.cluster, before.shares, before.policy).prediction.step_s
        saves = now_s - plan.prediction.step_s >= BENCH_SAVES_S
        return self._bench_votes.count(_BENCH_VOTES, is_wanted=saves)

    @property
    def benched(self) -> tuple[str, ...]:
        """Machines that the plan leaves out of the ring."""
        return () if self.plan is None else self.plan.benched

    def practised(self, name: str, samples: int, seconds: float) -> bool:
        """A benched worker has measured itself: whether the run would now be faster with its machine."""
        assert self.plan is not None
        assert self._cluster is not None
        self._fit.add(Timed(samples, seconds))
        mine = self._fit.profile()
        if mine is None:
            return False
        workers = [replace(each, compute=mine) if each.name == name else each for each in self._cluster.workers]
        again = make_plan(replace(self._cluster, workers=tuple(workers)), self.plan.prediction.samples, "dynamic")
        machine = next(each.machine for each in workers if each.name == name)
        self._return_s = again.prediction.step_s
        return machine not in again.benched

    def unbenched(self, machine: str, step: int, *, pays: bool) -> None:
        """Tell that a machine takes part again, because that pays or because nobody else is left."""
        assert self.plan is not None
        reason = "the others are gone"
        if pays:
            without_s = seconds_text(self.plan.prediction.step_s)
            reason = f"with it a step should take {seconds_text(self._return_s)} instead of {without_s}"
        self._tell(MachineUnbenched(step=step + 1, machine=machine, reason=reason))
        self._tell(Notice(text=f"{machine} takes part again: {reason}"))

    def _tell_plan(self, roster: Roster, told: Sequence[Told], decision: Decision, step: int, batch: int) -> None:
        plan = decision.plan
        solo = {
            member.name: numbers.profile.solo_speed(batch)
            for member, numbers in zip(roster.members, told, strict=True)
            if numbers.profile is not None
        }
        self._tell(
            PlanChanged(
                step=step + 1,
                policy=plan.policy,
                shares=plan.share_of,
                reason=decision.reason,
                step_s=plan.prediction.step_s,
                samples_per_s=plan.prediction.samples_per_s,
                error=plan.prediction.error,
                solo_samples_per_s=solo,
                machines={member.name: member.machine for member in roster.members},
                slowest_link=decision.cluster.slowest_link(plan.shares),
            )
        )

    def _tell_benched(self, decision: Decision, step: int) -> None:
        # The group ends with such a plan, so that each machine is told of once.
        plan = decision.plan
        for machine in plan.benched:
            with_it = if_kept(decision.cluster, plan, machine).prediction
            reason = explain_benched(decision.cluster, plan, machine)
            self._tell(
                MachineBenched(
                    step=step + 1,
                    machine=machine,
                    reason=reason,
                    samples_per_s=plan.prediction.samples_per_s,
                    samples_per_s_with_it=with_it.samples_per_s,
                )
            )
            self._tell(Notice(text=reason))


def _setting(roster: Roster, batch: int, exchange: Exchange, look: Look) -> Setting:
    links = {
        member.machine: LinkProfile(latency_s=member.link[0], bandwidth_bytes_per_s=member.link[1])
        for member in roster.members
        if member.link
    }
    return Setting(
        batch=batch,
        policy=roster.policy,
        exchange=exchange,
        links=links,
        keep=[name for name in roster.keep if name in roster.machines],
        least_gain=look.least_gain,
    )


def _with_guesses(told: Sequence[Told], batch: int) -> list[Told]:
    """A worker that knows nothing of its own cost counts as the average of the others, until its first step."""
    part = max(1, batch // len(told))
    costs = [numbers.profile.seconds(part) / part for numbers in told if numbers.profile is not None]
    if not costs:
        return list(told)
    guess = Told(0.0, statistics.fmean(costs), memory_cap=0.0, error=1.0, exchange_wait_s=0.0)
    return [numbers if numbers.profile is not None else guess for numbers in told]
