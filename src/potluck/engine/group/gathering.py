"""How a step finds its group: asks the lighthouse for a quorum, which becomes a GroupSession."""

import time

from potluck.core.errors import GroupError
from potluck.engine.group.attempt import NextStep
from potluck.engine.group.connection import Connection
from potluck.engine.group.forming import SelfDescription
from potluck.engine.group.nccl import own_card, own_nccl
from potluck.engine.group.place import code_of
from potluck.engine.group.roster import Member, Roster, RoundEntry, StateDigest, setting_of
from potluck.engine.group.session import GroupSession
from potluck.measuring.sources import exchange_of

_LONELY_S = 5.0
_ASK_AGAIN_S = 0.05
_RESUMED_S = 5.0  # workers of a resumed run start within seconds of each other
_TOO_FEW = RuntimeError("others have not found the restarted lighthouse yet")
_OTHER_HISTORY = RuntimeError("most others have come to this step by other commits")


class Gathering:
    """Asks the lighthouse for quorums. Runs on the training thread; `forming` has the code on torchft's thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._formed: GroupSession | None = None
        self.session: GroupSession | None = None
        """The group that this worker trains in; torchft's thread may already be forming the next one."""

    def ask(self, settled: Roster | None, global_batch: int, round_: RoundEntry) -> None:
        """Ask for a quorum, on torchft's thread. `settled`: the workers of this worker's last committed step.

        `round_`: what this worker tells of its open round.
        """
        connection = self._connection
        connection.membership.ask(
            SelfDescription(
                member=_describe(connection, round_),
                cost=connection.balance.own_cost(),
                global_batch=global_batch,
                trained_with=() if settled is None else settled.order,
            )
        )

    def begin(
        self, how: NextStep, settled: Roster | None, global_batch: int, round_: RoundEntry
    ) -> tuple[GroupSession, bool]:
        """The group that a step begins in, and whether a quorum has confirmed it."""
        connection = self._connection
        if how is NextStep.PRESUMES and self.session is not None:
            # This worker computes its share before the quorum is known: the group checks the share before the
            # all-reduce, and after it that all shares add up.
            self.ask(settled, global_batch, round_)
            return self.session, False
        if how is NextStep.GOES_ON and self.session is not None:
            connection.membership.lend()
            return self.session, True
        with connection.waits.waiting_for("group"):
            was_spoiled = how is NextStep.WAITS_AFTER_SPOILED
            return self.gather(settled, global_batch, round_, was_spoiled=was_spoiled), True

    def gather(
        self, settled: Roster | None, global_batch: int, round_: RoundEntry, *, was_spoiled: bool
    ) -> GroupSession:
        """Wait until a group with this worker has formed. `was_spoiled`: the previous attempt was not committed."""
        connection, manager = self._connection, self._connection.membership.manager
        started, told, first_step = time.monotonic(), False, manager.current_step()
        while True:
            if manager.current_step() != first_step:
                round_ = RoundEntry(round_.steps)  # healed meanwhile: what this worker did was of an earlier round
            self.ask(settled, global_batch, round_)
            connection.membership.answer()
            session = connection.process_group.session
            if session is None or manager.errored() is not None:
                connection.notices.stranger(connection.process_group.stranger)
                manager.should_commit()  # this attempt is spoiled: the next quorum forms a new group
                self._note_spoiled(settled, session)
                was_spoiled = False
                continue
            roster = session.roster
            if not roster.is_whole:
                manager.report_error(_TOO_FEW)
                manager.should_commit()  # also loads the state that this worker was healed with
                time.sleep(_ASK_AGAIN_S)
                continue
            is_complete = len(roster.members) >= connection.place.expected
            # A worker that resumes from a checkpoint could train alone and end the run before the other workers start:
            # they would resume from the same checkpoint and train the same steps again.
            is_resumed = settled is None and len(roster.members) == 1
            may_begin = roster.step > 0 and not (is_resumed and time.monotonic() - started < _RESUMED_S)
            if is_complete or may_begin:
                if was_spoiled:
                    self._note_spoiled(settled, session)
                self._accept(session, global_batch)
                if self._begin_alike(session):
                    return session
                manager.should_commit()
                continue
            if not told and time.monotonic() - started > _LONELY_S:
                told = True
                here = ", ".join(member.name for member in roster.members)
                connection.notices.say(
                    f"{len(roster.members)} of {connection.place.expected} workers are here ({here}); waiting"
                )
            time.sleep(_ASK_AGAIN_S)

    def answer(self, global_batch: int) -> GroupSession | None:
        """Wait for the quorum that `ask` asked for; None if the step is already spoiled."""
        connection, manager = self._connection, self._connection.membership.manager
        connection.membership.answer()
        session = connection.process_group.session
        if session is None or manager.errored() is not None:
            return None
        if not session.roster.is_whole:
            manager.report_error(_TOO_FEW)
            return None
        if self._differs(session):
            manager.report_error(_OTHER_HISTORY)  # this worker's share came from its own state; the retry heals it
            connection.process_group.break_off()
            return None
        return self._accept(session, global_batch)

    def _accept(self, session: GroupSession, global_batch: int) -> GroupSession:
        """Train in this session; if it has just formed, plan from the introductions of its members."""
        connection = self._connection
        if session is not self._formed:
            exchange = exchange_of(connection.model.exchange.num_bytes, code_of(session.exchange.mode))
            setting = setting_of(session.roster.members, global_batch, exchange)
            connection.balance.formed(setting, session.roster.step)
            self._formed = session
        self.session = session
        if session.heals_somebody:
            connection.timeout.healing(connection.model.state_bytes)
        return session

    def _begin_alike(self, session: GroupSession) -> bool:
        """Before a group's first step: a worker whose state differs takes that of most others; False if it cannot."""
        connection, roster = self._connection, session.roster
        if not self._differs(session):
            return True
        try:
            state = connection.membership.fetch(roster.reference.state_address, roster.step, or_others=True)
        except (OSError, GroupError) as error:
            connection.membership.manager.report_error(error)  # those who have it are gone: the next group has others
            connection.process_group.break_off()
            return False
        connection.membership.begin_change()
        connection.model.heal(state)
        connection.membership.lend()
        return True

    def _differs(self, session: GroupSession) -> bool:
        """Whether this worker is at the group's step with another state, in the group's first step."""
        roster = session.roster
        return not session.has_committed and roster.me.step == roster.step and roster.me not in roster.holders

    def _note_spoiled(self, settled: Roster | None, session: GroupSession | None) -> None:
        before = set() if settled is None else settled.names
        now = set() if session is None else session.roster.names
        self._connection.timeout.spoiled(someone_left=not before <= now)


def _describe(connection: Connection, round_: RoundEntry) -> Member:
    """This worker's entry in the roster, except what depends on the number of workers."""
    place, membership, history = connection.place, connection.membership, connection.model.history
    return Member(
        name=place.name,
        machine=place.machine,
        step=membership.manager.current_step(),
        state_address=membership.state_address,
        model=connection.model.fingerprint,
        exchange=place.exchange.name,
        nccl=own_nccl(place.device),
        device=str(place.device),
        card=own_card(place.device),
        lan_address=place.lan_address,
        host=place.host,
        introduction=connection.balance.introduction(place.share),
        state=StateDigest(history=history) if history else StateDigest(weights=connection.model.weights),
        gradient_address=connection.gradient_address,
        round=round_,
    )
