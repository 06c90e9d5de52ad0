"""Votes about who is the host, and this machine's candidacy for it: what to say to whom, when, and who has won.

As in Raft's elections: a vote is for one term, it is on disk before it is given, and nobody votes twice in a term. A
machine that still hears its host gives no vote (gates/lease.py), so a host is not replaced while it can act.

An election begins with a trial ("pre-vote" in Raft): would enough machines vote for this one? Until they say so, nobody
takes part in a newer term. Else a machine that was cut off would come back with a term of its own, and never confirm
its host again. Where that has happened all the same, the host asks for a term that is newer still.
"""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from potluck.gates.lease import VOTE_S, may_decide
from potluck.gates.messages import Promised, Touch
from potluck.meeting.access.gating import as_electorates
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.succession.notes import Canvass, Known, Release, Vote, write_note
from potluck.meeting.wire import GateOrders, Succession

_ANSWER_S = 1.0
_MARGIN_S = 0.5  # the others may have heard the host a ping later
_TURN_S = 1.2  # by which the second successor waits longer than the first
_RELEASE_S = 15.0
_SETTLE_S = 2.0  # in which a successor that was asked to take over may win the newer term


class GateTalk(Protocol):
    """The part of a line to the gate that votes need."""

    def touch(self) -> Touch: ...

    def promise(self, term: int, candidate: str, *, is_released: bool = False, is_trial: bool = False) -> Promised: ...

    def say(self, machine: str, text: str) -> bool: ...


@dataclass
class _Running:
    """An election that this machine has begun."""

    term: int
    is_trial: bool
    began_at: float
    votes: set[str] = field(default_factory=set)


class Candidacy:
    """One machine's part in elections. Used by one thread."""

    def __init__(
        self,
        machine: str,
        ballots: BallotFile,
        gate: GateTalk,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._machine = machine
        self._ballots = ballots
        self._gate = gate
        self._clock = clock
        self._chance = chance
        self._running: _Running | None = None
        self._again_at = 0.0
        self._released: tuple[str, int, float] | None = None
        """A successor that the host has named, the host's term, and when the host did."""
        self._told_term = 0
        """The newest term that other machines have refused a vote with."""
        self._newer_since: float | None = None
        """Since when this host, which enough machines confirm, has known of a newer term without a host."""
        self.refusals: dict[str, str] = {}
        """Why machines gave no vote to this one in its last election."""

    def follow(self, orders: GateOrders) -> None:
        """Note the newest orders of this machine's host."""
        if not self._is_released(self._machine):
            self._again_at = max(self._again_at, self._clock() + _ANSWER_S)  # the host is back, its pings follow
        ballot = self._ballots.ballot
        if ballot.orders is None or ballot.orders.block != orders.block:
            self._ballots.note(orders=orders, promised=0)
        elif orders.succession.term >= ballot.term:
            self._ballots.note(orders=orders)

    def abstain(self) -> None:
        """This machine leaves its host: it votes for nobody until it has orders again. OSError if not on disk.

        It still knows the successors: one of them may be the host when it comes back.
        """
        self._running = None
        orders = self._ballots.ballot.orders
        if orders is not None:
            rest = Succession(term=orders.succession.term, successors=orders.succession.successors)
            self._ballots.note(orders=orders.model_copy(update={"succession": rest}))

    def hear(self, sender: str, note: Known, copy: int) -> None:
        """Take a note of another machine; `copy` is the number of this machine's own copy of the host's state."""
        match note:
            case Canvass():
                vote = self._vote(sender, note, copy)
                self._gate.say(sender, write_note(vote))
            case Vote():
                self._take_vote(sender, note)
            case Release(term=term) if sender == self._ballots.ballot.host and term == self._ballots.ballot.term:
                self._told_term = max(self._told_term, note.newest_term)
                self._release(note.to)

    def give_away(self, to: str) -> Release:
        """As the host, promise this machine's vote to another one; returns the note for all voters.

        From the promise on this host may not act: others may have elected `to` before their confirmations are too old.
        """
        term = max(self._gate.touch().newest_term, self._ballots.ballot.newest_term) + 1
        self._gate.promise(term, to, is_released=True)
        with suppress(OSError):  # on a full disk: the gate has the promise, and others no more confirm this term
            self._ballots.note(promised=term)
        self._release(to)
        return Release(term=self._ballots.ballot.term, to=to, newest_term=term)

    def _release(self, to: str) -> None:
        """The host wants `to` to be the next host: it may have this machine's vote at once."""
        self._released = (to, self._ballots.ballot.term, self._clock())
        self._again_at = 0.0

    def _is_released(self, candidate: str) -> bool:
        if self._released is None:
            return False
        to, term, at = self._released
        return to == candidate and term == self._ballots.ballot.term and self._clock() - at < _RELEASE_S

    def _vote(self, candidate: str, asked: Canvass, copy: int) -> Vote:
        orders = self._ballots.ballot.orders
        succession = Succession() if orders is None else orders.succession
        why = ""
        if orders is None or not succession.electorates:
            why = f"{self._machine} has left, and votes again when it has joined again"
        elif candidate not in succession.successors and candidate != orders.host:
            why = f"{candidate} is no successor"
        elif asked.electorate < succession.number:
            why = f"{candidate} does not know of the newest machines"
        elif asked.copy < copy:
            why = f"{self._machine} has a newer copy of the host's state"
        elif not self._promise(asked.term, candidate, is_trial=asked.is_trial):
            why = f"{self._machine} hears {orders.host}, or has voted already"
        newest = self._ballots.ballot.newest_term
        return Vote(term=asked.term, granted=not why, is_trial=asked.is_trial, why=why, newest_term=newest)

    def _promise(self, term: int, candidate: str, *, is_trial: bool) -> bool:
        """Promise this machine's vote; in a trial only say whether it could be promised."""
        if term <= self._ballots.ballot.newest_term:
            return False
        is_released = self._is_released(candidate)
        promised = self._gate.promise(term, candidate, is_released=is_released, is_trial=is_trial)
        if promised.granted and not is_trial:
            if self._released is not None and self._released[0] != candidate:
                self._released = None  # the host's word was of a term that is over
            self._ballots.note(promised=term)  # OSError: the vote is lost, but it is not given
        return promised.granted

    def _take_vote(self, sender: str, vote: Vote) -> None:
        running = self._running
        self._told_term = max(self._told_term, 0 if vote.granted else vote.newest_term)
        if running is None or (vote.term, vote.is_trial) != (running.term, running.is_trial):
            return
        if vote.granted:
            running.votes.add(sender)
        else:
            self.refusals[sender] = vote.why

    def look(self, copy: int) -> int | None:
        """Begin an election if it is this machine's turn; the term that it has won, or None.

        `copy`: the number of this machine's copy of the host's state; 0 if it has none.
        """
        orders = self._ballots.ballot.orders
        if orders is None or not orders.succession.electorates or not copy:
            return None
        if self._running is not None:
            return self._count(orders.succession, copy)
        is_host = orders.host == self._machine
        if self._clock() < self._again_at or (self._machine not in orders.succession.successors and not is_host):
            return None
        touch = self._gate.touch()
        if not self._is_released(self._machine) and not self._is_due(orders, touch, is_host=is_host):
            return None
        term = max(touch.newest_term, self._ballots.ballot.newest_term, self._told_term) + 1
        return self._canvass(term, orders.succession, copy, is_trial=True)

    def _canvass(self, term: int, succession: Succession, copy: int, *, is_trial: bool) -> int | None:
        """Ask all voters for their vote, or whether they would give it; the term if no other vote is needed."""
        if not self._promise(term, self._machine, is_trial=is_trial):
            self._running = None
            self._again_at = self._clock() + _ANSWER_S
            return None
        self._running = _Running(term=term, is_trial=is_trial, began_at=self._clock(), votes={self._machine})
        self.refusals = {}
        ask = write_note(Canvass(term=term, electorate=succession.number, copy=copy, is_trial=is_trial))
        for voter in succession.voters():
            if voter != self._machine and not self._gate.say(voter, ask):
                self.refusals[voter] = "it cannot be reached"
        return self._count(succession, copy)

    def _is_due(self, orders: GateOrders, touch: Touch, *, is_host: bool) -> bool:
        if is_host:  # an election that nobody has won: this host needs a newer term
            return self._needs_newer_term(touch, orders.succession.term)
        turn = orders.succession.successors.index(self._machine)
        return touch.host_heard_s > VOTE_S + _MARGIN_S + turn * _TURN_S

    def _needs_newer_term(self, touch: Touch, term: int) -> bool:
        """Whether machines take part in a newer term that has no host: they do not confirm this host any more."""
        if touch.newest_term <= term:
            self._newer_since = None
        elif not touch.has_lease:
            return True
        elif self._newer_since is None:
            self._newer_since = self._clock()
        return self._newer_since is not None and self._clock() - self._newer_since > _SETTLE_S

    def _count(self, succession: Succession, copy: int) -> int | None:
        """The term, if enough machines have voted for this one; after enough trial votes the real ones are asked."""
        running = self._running
        assert running is not None
        if all(may_decide(electorate, running.votes) for electorate in as_electorates(succession)):
            if running.is_trial:
                return self._canvass(running.term, succession, copy, is_trial=False)
            self._running = None
            self._newer_since = None
            return running.term
        if self._clock() > running.began_at + _ANSWER_S:
            self._running = None
            self._again_at = self._clock() + 0.3 + 0.7 * self._chance()
        return None
