"""What all workers of a group know of a round, each by itself: its steps, its samples, and which of them are done."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from potluck.core.exchange_options import IN_ROUNDS
from potluck.engine.balance.balance import Balance
from potluck.engine.group.gathering import Gathering
from potluck.engine.group.place import ExchangeWish, code_of
from potluck.engine.order.pieces import Piece, kept_of, missing, num_samples
from potluck.engine.order.position import BatchSizes
from potluck.planning.round_rule import LEAST_STEPS, check_enough_rounds, round_steps, warm_up_steps

_BARELY = 0.05  # an exchange that makes a step longer by less is taken for hidden


class RoundTerms:
    """The rounds of a run: the same on all workers, as long as these are in one group."""

    def __init__(self, wish: ExchangeWish, balance: Balance, gathering: Gathering) -> None:
        self._wish = wish
        self._balance = balance
        self._gathering = gathering
        self.round_steps = 0
        """Steps of a round, once they are known."""
        self.order: BatchSizes | None = None

    def check_length(self) -> None:
        """Refuse a run that is too short for rounds, before its first step, unless the user has named both lengths."""
        last_step, wish = self._last_step, self._wish
        is_named = wish.round_steps is not None and wish.warm_up_steps is not None
        if last_step is not None and wish.name != "auto" and not is_named:
            warm_up = warm_up_steps(last_step, wish.warm_up_steps)
            check_enough_rounds(last_step, warm_up, wish.round_steps or LEAST_STEPS)

    @property
    def code(self) -> str:
        """How values travel in the present group."""
        return code_of(self._mode)

    @property
    def _last_step(self) -> int | None:
        """The run's last step, by the members' introductions: a resumed worker may have counted another one."""
        session = self._gathering.session
        told = [] if session is None else [member.introduction.last_step for member in session.roster.members]
        return min((last_step for last_step in told if last_step), default=self._balance.last_step)

    @property
    def _mode(self) -> str:
        """How the present group exchanges, as all its members have chosen."""
        session = self._gathering.session
        return "exact" if session is None else session.exchange.mode

    @property
    def warm_up(self) -> float:
        """The first step that may begin a round; infinite in a group that exchanges after every step."""
        if self._mode not in IN_ROUNDS:
            return math.inf
        last_step = self._last_step
        return 0 if last_step is None else warm_up_steps(last_step, self._wish.warm_up_steps)

    def steps_of(self, step: int) -> int:
        """The steps of the round that begins with this step; 1 before the first round."""
        if step < self.warm_up:
            return 1
        if not self.round_steps:
            session = self._gathering.session
            told = 0 if session is None else max(member.round.steps for member in session.roster.members)
            self.round_steps = told or self._choose_steps()
        assert self.order is not None
        rest, last_step = self.order.rest_of_epoch(step), self._last_step
        return min(self.round_steps, rest, rest if last_step is None else last_step - step)

    def samples_of(self, step: int) -> int:
        """The samples of the round that begins with this step."""
        assert self.order is not None
        return sum(self.order.batch_of(step + index) for index in range(self.steps_of(step)))

    def done(self, step: int) -> list[Sequence[Piece]]:
        """What each member of this quorum has trained of the round that begins with this step, before this quorum."""
        session = self._gathering.session
        if session is None:
            return []
        if session.has_committed:
            return [()] * len(session.roster.members)
        members, holders = session.roster.members, session.roster.holders
        return kept_of([member.round.done if member.step == step and member in holders else () for member in members])

    def missing(self, step: int) -> list[Piece]:
        """What nobody has trained of that round."""
        return missing(self.samples_of(step), [piece for pieces in self.done(step) for piece in pieces])

    def _choose_steps(self) -> int:
        """From the steps of the warm-up, as all workers have measured them together."""
        assert self.order is not None
        plan, work_s, exchange_s = self._balance.replanner.in_force, 1.0, 0.0
        if plan is not None and plan.ring is not None:
            work_s, exposed_s = plan.ring.work_s, plan.ring.exposed_s
            exchange_s = exposed_s + work_s / 2 if exposed_s > _BARELY * work_s else 0.0
        return round_steps(self.order.global_batch, step_s=work_s, exchange_s=exchange_s, wished=self._wish.round_steps)


@dataclass(slots=True)
class RoundSizes:
    """The sizes that a group splits: after the warm-up what is left of a round's samples, else a batch."""

    terms: RoundTerms
    order: BatchSizes

    @property
    def global_batch(self) -> int:
        return self.order.global_batch

    def rest_of_epoch(self, step: int) -> int:
        return self.order.rest_of_epoch(step)

    def batch_of(self, step: int) -> int:
        return self.order.batch_of(step) if step < self.terms.warm_up else num_samples(self.terms.missing(step))
