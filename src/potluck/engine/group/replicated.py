"""Training with all workers that share a lighthouse: each takes a share of the batch, gradients are all-reduced."""

import time
from dataclasses import replace
from typing import Any

from torch import Tensor

from potluck.engine.group.attempt import NextStep, StepAttempt, next_step
from potluck.engine.group.benched import sit_down
from potluck.engine.group.connection import Connection
from potluck.engine.group.evaluation_sums import EvaluationSums
from potluck.engine.group.gathering import Gathering
from potluck.engine.group.gradients import Contribution, are_whole
from potluck.engine.group.lease import Lease
from potluck.engine.group.leased import LeasedGroup
from potluck.engine.group.protocol import Announcement, Committed, GroupState, Total
from potluck.engine.group.roster import Roster, RoundEntry, group_change
from potluck.engine.group.round_view import NO_ROUND, RoundView
from potluck.engine.group.session import GroupSession
from potluck.engine.order.position import BatchSizes, Slice

# In the first step of a group, shares may not add up because a worker presumed another group. The retry waits for the
# group, so only workers with different plans fail so often.
_MOST_UNLIKE = 4


class ReplicatedGroup:
    """The GroupState of exact data-parallel training, with torchft's membership and process group."""

    waits = True
    is_benched = False
    committed = Committed()
    round: RoundView = NO_ROUND

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._gathering = Gathering(connection)
        self._evaluation = EvaluationSums(connection)
        self._lease = Lease(connection.place.expected)
        self._leased = LeasedGroup(connection, self._lease, back=self)
        self._successor: GroupState = self
        self._settled: Roster | None = None
        """The workers of the last committed step."""
        self._has_stopped = False
        """Whether one of these workers announced that it would leave after that step."""
        self._num_unlike = 0
        """How often in a row the workers' shares did not add up to the global batch."""
        self._next = NextStep.WAITS
        self._asked_at = 0.0
        """time.monotonic of the beginning of the last step that asked for a quorum."""
        self._attempt: StepAttempt | None = None
        self._order: BatchSizes | None = None
        self._unexchanged = RoundEntry()
        """What this worker tells of an open round whose exchange has failed."""

    def catch_up(self, step: int) -> int:
        return step

    def successor(self) -> GroupState:
        successor, self._successor = self._successor, self
        return self._leased if successor is self and self._lease.is_valid else successor

    # A step

    def begin(self, step: int, order: BatchSizes) -> Slice:
        connection = self._connection
        self._order = order
        connection.membership.join(step)
        if self._attempt is not None and not self._attempt.is_confirmed:
            connection.membership.answer()  # the script has abandoned a step, whose quorum request is still open
        connection.model.exchange.remember()
        goes_on = self._next is NextStep.GOES_ON
        session, is_confirmed = self._gathering.begin(self._next, self._settled, order.global_batch, self._unexchanged)
        if is_confirmed:
            self._next = NextStep.WAITS
        began_at = time.monotonic()
        if not goes_on:
            self._asked_at = began_at
        step = connection.membership.manager.current_step()
        part = session.part(step, order.batch_of(step), connection.balance.replanner.shares(session.roster.order))
        self._attempt = StepAttempt(
            part=part,
            batch=order.batch_of(step),
            began_at=began_at,
            is_confirmed=is_confirmed,
            has_quorum=not goes_on,
        )
        if self._settled is not None:
            connection.told_step = step
        return part

    def expect(self, step: int, batch: int) -> Slice:
        session = self._gathering.session
        if session is None:
            return Slice(step, 0, batch)
        return session.part(step, batch, self._connection.balance.replanner.shares(session.roster.order))

    def exchange_in(self, *, this_pass: bool) -> None:
        self._connection.model.exchange_in(this_pass=this_pass, is_alone=False)

    def announce(self, own: Announcement) -> Slice:
        connection, (session, attempt) = self._connection, self._under_way()
        connection.model.check_passage()
        if not attempt.is_confirmed:
            connection.timer.lap("compute_s")
            session, attempt = self._confirm()
            connection.timer.lap("exchange_wait_s")
        self._attempt = replace(attempt, left_out=own.left_out)
        step, start, stop = attempt.part
        contribution = Contribution(step, ((start, stop),), own, since_quorum_s=time.monotonic() - self._asked_at)
        connection.model.exchange.begin(contribution, connection.balance.report(), session.roster)
        return attempt.part

    def total(self) -> Total:
        connection, (session, attempt) = self._connection, self._under_way()
        manager, part = connection.membership.manager, attempt.part
        with connection.waits.waiting_for("gradients"):
            sums, told = connection.model.exchange.end()
        if (error := connection.process_group.errored()) is not None:  # NCCL ends an aborted sum without an exception
            manager.report_error(error)
        connection.timer.lap("exchange_wait_s")
        if manager.errored() is None and part.num_samples and sums.mean_left_out != attempt.left_out:
            manager.report_error(RuntimeError("a script has left the loader's loop early, and others have not"))
        if manager.errored() is None and not are_whole(sums, part.step, attempt.batch):
            manager.report_error(RuntimeError(f"the parts do not add up to step {part.step}: {sums}"))
            self._num_unlike += 1
            if session.has_committed or self._num_unlike == _MOST_UNLIKE:
                connection.notices.say("workers came to different plans; from now on all take equal shares")
                connection.balance.distrust()
        self._attempt = replace(
            attempt,
            told=told,
            someone_leaves=sums.leaving > 0,
            since_quorum_s=sums.mean_since_quorum_s,
            someone_pauses=sums.pausing > 0,
        )
        return Total(sums.weight or 1.0, sums.loss, sums.mean_scale, sums.mean_left_out)

    def begin_change(self) -> None:
        self._connection.membership.begin_change()

    def commit(self) -> bool:
        connection, (session, attempt) = self._connection, self._under_way()
        manager, exchange = connection.membership.manager, connection.model.exchange
        has_failed = manager.errored() is not None
        if exchange.needs_state_first and session.is_behind:
            # torchft gives this worker the peers' state only now, after this step's optimizers have stepped. So spoil
            # the step: this worker takes part in the retry, with the peers' state.
            manager.report_error(RuntimeError("this worker has only now got the others' state"))
        with connection.waits.waiting_for("gradients"):
            committed = bool(manager.should_commit())
        exchange.settle(committed=committed)
        self._next = NextStep.WAITS if committed else NextStep.WAITS_AFTER_SPOILED
        if not committed and (has_failed or not attempt.has_quorum):
            # A peer may wait for this worker: in the same sum, if it has no link of its own to the one that is lost, or
            # in the next, if it has this sum.
            connection.process_group.break_off()
        if committed:
            self._settle(session, attempt)
        return committed

    def _confirm(self) -> tuple[GroupSession, StepAttempt]:
        """Wait for the quorum; if the group is at another step, change to that step."""
        connection, (_, attempt) = self._connection, self._under_way()
        assert self._order is not None
        asked = time.monotonic()
        with connection.waits.waiting_for("group"):
            session = self._gathering.answer(self._order.global_batch)
        # Waiting for the lighthouse says nothing about the peers' speed.
        attempt = replace(attempt, is_confirmed=True, began_at=attempt.began_at + time.monotonic() - asked)
        step = connection.membership.manager.current_step()
        if session is not None and step != attempt.part.step:
            part = session.part(
                step, self._order.batch_of(step), connection.balance.replanner.shares(session.roster.order)
            )
            attempt = replace(attempt, part=part, batch=self._order.batch_of(step))
        # Otherwise the share stays. If a worker is missing, the shares do not add up, and the step is retried. A
        # newcomer that must be healed first has an empty share, so the shares do add up.
        self._attempt = attempt
        return self._under_way()

    def _settle(self, session: GroupSession, attempt: StepAttempt) -> None:
        """After a commit: write the event of a changed group, replan if that is due, and choose the next GroupState."""
        connection, balance = self._connection, self._connection.balance
        roster, step, now = session.roster, attempt.part.step + attempt.num_steps, time.monotonic()
        if self._settled is not None:
            changed = group_change(
                self._settled,
                roster,
                step=step,
                quorum_id=session.quorum_id,
                has_stopped=self._has_stopped,
                stall_s=now - connection.last_commit.at,
            )
            if changed is not None:
                connection.notices.tell(changed)
                balance.re_forming_s = now - connection.last_commit.at
        connection.model.committed(attempt.part.step, session.quorum_id, roster.order)
        connection.timeout.committed(now - attempt.began_at)
        connection.waits.committed()
        if not session.has_committed:
            if session.choice is not None and len(roster.members) > 1:
                connection.notices.backend(session.choice, session.exchange, step, connection.nccl)
            connection.notices.in_the_open(connection.process_group.backend)
            connection.timeout.grown()
            connection.membership.forget_quorum()
        balance.committed(attempt.told, step, of_round=attempt.num_steps > 1)
        connection.told_step = step
        connection.last_commit.note(now, exchanged_s=now - attempt.began_at if len(roster.members) > 1 else None)
        self._next = next_step(attempt, is_settled=session.has_committed)
        session.has_committed = True
        self._num_unlike = 0
        self._lease.met(len(roster.members))
        self._settled, self._has_stopped = roster, attempt.someone_leaves
        if benched := balance.replanner.benched:
            self._next = NextStep.WAITS  # the benched machines leave with the next step
            if connection.place.machine in benched:
                self._successor = sit_down(connection, roster, attempt.part.num_samples, back=self)
                return
            self._gathering.session = session.without(benched)
            self._settled = self._gathering.session.roster
        if len(self._settled.members) == 1:
            self._next = NextStep.PRESUMES
            self._lease.renew()

    def _under_way(self) -> tuple[GroupSession, StepAttempt]:
        session, attempt = self._gathering.session, self._attempt
        assert session is not None
        assert attempt is not None
        return session, attempt

    def between_steps(self, state: dict[str, Any]) -> dict[str, Any]:
        return self._connection.model.between_steps(state)

    # Between steps

    @property
    def quorum_id(self) -> int:
        return 0 if self._gathering.session is None else self._gathering.session.quorum_id

    @property
    def writes(self) -> bool:
        """Whether this worker writes checkpoints: the host's, else the first by name."""
        session = self._gathering.session
        return session is None or session.roster.writes

    def evaluation_range(self, num_samples: int) -> range:
        self._evaluation.begin()
        if self._next is NextStep.GOES_ON:
            self._next = NextStep.PRESUMES  # workers may evaluate for unequal times
        if self._attempt is not None and not self._attempt.is_confirmed:  # the script evaluates in the middle of a step
            self._confirm()
        session = self._gathering.session
        if session is None:
            return range(num_samples)
        return session.evaluation_part(num_samples, self._connection.balance.replanner.shares(session.roster.order))

    def sum(self, values: Tensor) -> Tensor:
        session = self._gathering.session
        is_alone = session is None or len(session.roster.members) == 1
        return values if is_alone else self._evaluation.sum(values)

    def finish(self) -> None:
        connection = self._connection
        if self._settled is not None:
            if connection.balance.lone is not None and (text := connection.balance.lone.text()):
                connection.notices.say(text)
            connection.model.exchange.remember()
            connection.membership.finish()

    def close(self) -> None:
        connection = self._connection
        if self._settled is not None:
            connection.balance.keep()
            if len(self._settled.members) == 1 and connection.is_stopping():
                connection.model.exchange.remember()
                connection.membership.hand_over()
