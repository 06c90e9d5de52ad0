"""Training in rounds: many local steps on every worker, then one exchange of how far parameters have moved.

A round is to the group what a step is in exact training: one quorum, one exchange, one commit vote. Its samples are
those of the steps that it stands for, and every worker takes a piece of them by the plan. The first steps of a run, its
warm-up, are exchanged one by one. In a run with islands, a local step is exact training inside the island.

If the exchange fails, because a worker is lost, nobody's work is lost but that worker's. In the next quorum every
member says which pieces of the round it has trained (`roster.RoundEntry`); what is missing is split over all, trained
without islands, and the exchange is tried again. All workers of an island have trained the same pieces: they count for
the first of them, and the others begin the round anew. A worker that missed the end of a round takes the others' state.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from torch import Tensor

from potluck.engine.group.attempt import NextStep
from potluck.engine.group.connection import Connection
from potluck.engine.group.gradients import Contribution
from potluck.engine.group.open_round import OpenRound
from potluck.engine.group.protocol import Announcement, Committed, Total
from potluck.engine.group.replicated import ReplicatedGroup
from potluck.engine.group.roster import RoundEntry
from potluck.engine.group.round_terms import RoundSizes, RoundTerms
from potluck.engine.order.pieces import num_samples, take
from potluck.engine.order.position import BatchSizes, Slice
from potluck.planning.round_rule import outer_momentum

_PATIENCE = 0.25  # of a round: how much later than this worker another may be done with its local steps


class RoundsGroup(ReplicatedGroup):
    """The GroupState of a run in rounds."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.round = _OpenRoundView(self)
        self.open_round: OpenRound | None = None
        self._terms = RoundTerms(connection.place.exchange, connection.balance, self._gathering)
        self._total = Total(0.0, 0.0, 1.0)

    # A step

    def begin(self, step: int, order: BatchSizes) -> Slice:
        if self._settled is None:
            self._terms.check_length()
        if self.open_round is None or self.open_round.is_trained:
            may_change = self._connection.place.exchange.name == "auto"  # with the group, and all must change together
            if (step >= self._terms.warm_up or may_change) and self._next is not NextStep.WAITS_AFTER_SPOILED:
                self._next = NextStep.WAITS  # a quorum takes milliseconds, a round many seconds
            self._terms.order = order
            part = super().begin(step, RoundSizes(self._terms, order))
            self._connection.model.exchange.wire.switch_to(None, self._terms.code)
            if part.step < self._terms.warm_up:
                self.leave_round()
                return part
            self._take_part(part)
        assert self.open_round is not None
        return self.open_round.next_slice()

    def expect(self, step: int, batch: int) -> Slice:
        return super().expect(step, batch) if self.open_round is None else self.open_round.current

    def exchange_in(self, *, this_pass: bool) -> None:
        is_alone = self.open_round is not None and self.open_round.island is None
        self._connection.model.exchange_in(this_pass=this_pass, is_alone=is_alone)

    def announce(self, own: Announcement) -> Slice:
        round_ = self.open_round
        if round_ is None:
            return super().announce(own)
        self._total = Total(own.weight, own.loss_sum, own.scale, own.left_out)
        if round_.island is not None:
            step, start, stop = round_.current
            contribution = Contribution(step, ((start, stop),), own)
            exchange = self._connection.model.exchange
            exchange.wire.switch_to(round_.island.group, "exact")
            exchange.begin(contribution, self._connection.balance.report(), round_.island.roster)
        return round_.current

    def total(self) -> Total:
        round_ = self.open_round
        if round_ is None:
            return super().total()
        if round_.island is not None:
            with self._connection.waits.waiting_for("gradients"):
                sums, _ = self._connection.model.exchange.end()
            self._connection.timer.lap("exchange_wait_s")
            round_.is_summed = sums.samples == num_samples(round_.pieces_of_step)
            self._total = Total(sums.weight, sums.loss, sums.mean_scale, sums.mean_left_out)
        return self._total._replace(weight=self._total.weight or 1.0)

    def moves(self) -> bool:
        """Whether the open local step changes this worker's parameters."""
        round_ = self.open_round
        if round_ is None or round_.island is None:
            return round_ is None or round_.current.num_samples > 0
        return round_.is_summed and not self._connection.model.exchange.wire.has_failed

    def commit(self) -> bool:
        round_, self.committed = self.open_round, Committed()
        if round_ is None:
            return super().commit()
        if round_.island is not None:
            if not self.moves():
                return self._break_off(round_)
            self._connection.model.exchange.settle(committed=True)
        round_.end_step(self._total)
        if not round_.is_trained:
            self.committed = Committed(num_steps=0)
            return not round_.is_again
        return self._exchange(round_)

    def evaluation_range(self, num_samples: int) -> range:
        """In a round, all samples: workers come to an evaluation at different times, or not at all."""
        return range(num_samples) if self.open_round is not None else super().evaluation_range(num_samples)

    def sum(self, values: Tensor) -> Tensor:
        return values if self.open_round is not None else super().sum(values)

    # A round

    def _take_part(self, part: Slice) -> None:
        """Plan this worker's local steps: of a new round, or of what is missing in one whose exchange has failed."""
        session, _ = self._under_way()
        model = self._connection.model
        if self.open_round is not None and model.round_start is None:
            self._close()  # this worker has got the others' state meanwhile
        done = self._terms.done(part.step)
        if self.open_round is not None and (self.open_round.start != part.step or not done[session.roster.mine]):
            self.leave_round()  # another has trained the same, or all begin anew
        is_again, num_steps = any(done), self._terms.steps_of(part.step)
        if self.open_round is None:
            model.begin_round()
            self._connection.membership.lend(is_elsewhere=True)  # the parameters begin to move
            batch = max(1, -(-part.num_samples // num_steps))
            self.open_round = OpenRound(
                start=part.step, num_steps=num_steps, began_at=time.monotonic(), usual_batch=batch
            )
        if is_again:
            self.open_round.assign_rest(take(self._terms.missing(part.step), part.start, part.stop))
            return
        island = None if session.island is None or session.island.is_alone else session.island
        places = () if island is None else island.places
        samples = self._terms.samples_of(part.step)
        shares = self._connection.balance.replanner.shares(session.roster.order)
        of_island = [session.part_of(place, part.step, samples, shares) for place in places]
        self.open_round.assign((part.start, part.stop), island, [(one.start, one.stop) for one in of_island])

    def _break_off(self, round_: OpenRound) -> bool:
        """A worker of this island is lost: keep what the island has done, and find a new group."""
        connection = self._connection
        if not connection.model.exchange.wire.has_failed:
            connection.membership.manager.report_error(RuntimeError("an island's parts do not add up"))
        connection.process_group.break_off()
        round_.break_off()
        self._unexchanged = self._entry(round_)
        return super().commit()

    def _exchange(self, round_: OpenRound) -> bool:
        """All local steps are done: exchange how far parameters have moved, vote, and make the outer step."""
        connection, outer = self._connection, self._connection.model.outer
        assert outer is not None
        connection.timer.lap("compute_s")
        session, attempt = self._under_way()
        step, exchange, now = attempt.part.step, connection.model.exchange, time.monotonic()
        patience_s = _PATIENCE * (now - round_.began_at)
        connection.timeout.wait_for_slower(patience_s)
        left_out = int(self._total.left_out)
        samples, num_steps = self._terms.samples_of(step), self._terms.steps_of(step)
        self._attempt = replace(
            attempt, batch=samples, num_steps=num_steps, began_at=now - patience_s, left_out=left_out
        )
        is_leader = round_.island is None or round_.island.is_leader
        exchange.wire.switch_to(None, self._terms.code)
        contribution = round_.contribution(connection.is_stopping(), left_out, counts=is_leader)
        exchange.begin(contribution, connection.balance.report(of_round=num_steps > 1), session.roster)
        moved = outer.moved(round_.weight) if is_leader and round_.weight else outer.nothing()
        self._sum(moved, round_)
        total, is_behind = super().total(), session.is_behind
        committed = super().commit()
        if committed:
            if is_behind:
                outer.begin()  # this worker has only now got the others' state
            outer.about_to_change()
            outer.apply(moved, total.weight, outer_momentum(self._terms.round_steps))
            connection.membership.advance(num_steps - 1)
            self.committed = Committed(num_steps, total, samples)
        if committed or is_behind:
            self._close()
        else:
            round_.is_again = True
            self._unexchanged = self._entry(round_)
        return committed

    def _sum(self, moved: Sequence[Tensor], round_: OpenRound) -> None:
        """Replace how far this worker's parameters have moved by the sum over all; an island sends its own once."""
        session, _ = self._under_way()
        wire, island = self._connection.model.exchange.wire, round_.island
        if session.island is not None and not round_.is_again:
            wire.switch_to(session.island.leaders, self._terms.code)
        with self._connection.waits.waiting_for("gradients"):
            if island is None or island.is_leader:
                for under_way in [wire.sum(one, is_last=one is moved[-1]) for one in moved]:
                    under_way.wait()
            if island is not None:
                try:
                    is_fine = island.pass_on(moved, self._connection.timeout.timeout(), is_fine=not wire.has_failed)
                except Exception as error:  # noqa: BLE001  a worker of the island is gone
                    wire.report(error)
                else:
                    if not is_fine:
                        wire.report(RuntimeError("the island's leader has not got the sums"))

    def leave_round(self) -> None:
        """Go back to the beginning of the open round, if there is one."""
        if self.open_round is not None:
            model = self._connection.model
            model.heal(model.whole_state())
            self._close()

    def _entry(self, round_: OpenRound) -> RoundEntry:
        """What this worker tells the next group of a round that was not exchanged."""
        return RoundEntry(self._terms.round_steps, tuple(round_.done))

    def _close(self) -> None:
        self.open_round, self._unexchanged = None, RoundEntry(self._terms.round_steps)
        self._connection.model.end_round()

    def global_parameters(self) -> AbstractContextManager[None]:
        """Inside, the model has the parameters of the round's beginning."""
        outer = self._connection.model.outer
        return nullcontext() if self.open_round is None or outer is None else outer.global_parameters()


class _OpenRoundView:
    """The RoundView of a RoundsGroup."""

    def __init__(self, group: RoundsGroup) -> None:
        self._group = group

    @property
    def is_open(self) -> bool:
        return self._group.open_round is not None

    @property
    def moves(self) -> bool:
        return self._group.moves()

    def upcoming(self) -> list[Slice]:
        round_ = self._group.open_round
        return [] if round_ is None else round_.upcoming()

    def leave(self) -> None:
        self._group.leave_round()

    def global_parameters(self) -> AbstractContextManager[None]:
        return self._group.global_parameters()
