"""Votes about who is the host, and this machine's candidacy for it: what to say to whom, when, and who has won.

As in Raft's elections: a vote is for one term, it is on disk before it is given, and nobody votes twice in a term. A
machine that still hears its host gives no vote (gates/lease.py), so a host is not replaced while it can act.
"""

import random
import time
from collections.abc import Callable
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


class GateTalk(Protocol):
    """The part of a line to the gate that votes need."""

    def touch(self) -> Touch: ...

    def promise(self, term: int, candidate: str, *, is_released: bool = False) -> Promised: ...

    def say(self, machine: str, text: str) -> bool: ...


@dataclass
class _Running:
    """An election that this machine has begun."""

    term: int
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
        self.refusals: dict[str, str] = {}
        """Why machines gave no vote to this one in its last election."""

    def follow(self, orders: GateOrders) -> None:
        """Note the newest orders of this machine's host."""
        ballot = self._ballots.ballot
        if ballot.orders is None or ballot.orders.block != orders.block:
            self._ballots.note(orders=orders, promised=0)
        elif orders.succession.term >= ballot.term:
            self._ballots.note(orders=orders)

    def hear(self, sender: str, note: Known, copy: int) -> None:
        """Take a note of another machine; `copy` is the number of this machine's own copy of the host's state."""
        match note:
            case Canvass():
                vote = self._vote(sender, note, copy)
                self._gate.say(sender, write_note(vote))
            case Vote(term=term, granted=granted, why=why) if self._running and term == self._running.term:
                if granted:
                    self._running.votes.add(sender)
                else:
                    self.refusals[sender] = why
            case Release(term=term, to=to) if sender == self._ballots.ballot.host and term == self._ballots.ballot.term:
                self.release(to)

    def release(self, to: str) -> None:
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
        if orders is None or (candidate not in succession.successors and candidate != orders.host):
            why = f"{candidate} is no successor"
        elif asked.electorate < succession.number:
            why = f"{candidate} does not know of the newest machines"
        elif asked.copy < copy:
            why = f"{self._machine} has a newer copy of the host's state"
        if why:
            return Vote(term=asked.term, granted=False, why=why)
        promised = self._promise(asked.term, candidate)
        why = "" if promised else f"{self._machine} hears {orders.host if orders else 'a host'}, or has voted already"
        return Vote(term=asked.term, granted=promised, why=why)

    def _promise(self, term: int, candidate: str) -> bool:
        if term <= self._ballots.ballot.newest_term:
            return False
        promised = self._gate.promise(term, candidate, is_released=self._is_released(candidate))
        if promised.granted:
            self._ballots.note(promised=term)  # OSError: the vote is lost, but it is not given
        return promised.granted

    def look(self, copy: int) -> int | None:
        """Begin an election if it is this machine's turn; the term that it has won, or None.

        `copy`: the number of this machine's copy of the host's state; 0 if it has none.
        """
        orders = self._ballots.ballot.orders
        if orders is None or not orders.succession.electorates or not copy:
            return None
        if self._running is not None:
            return self._count(orders.succession)
        is_host = orders.host == self._machine
        if self._clock() < self._again_at or (self._machine not in orders.succession.successors and not is_host):
            return None
        touch = self._gate.touch()
        if not self._is_released(self._machine) and not self._is_due(orders, touch, is_host=is_host):
            return None
        term = max(touch.newest_term, self._ballots.ballot.newest_term) + 1
        if not self._promise(term, self._machine):
            self._again_at = self._clock() + _ANSWER_S
            return None
        self._running = _Running(term=term, began_at=self._clock(), votes={self._machine})
        self.refusals = {}
        ask = Canvass(term=term, electorate=orders.succession.number, copy=copy)
        for voter in orders.succession.voters():
            if voter != self._machine and not self._gate.say(voter, write_note(ask)):
                self.refusals[voter] = "it cannot be reached"
        return self._count(orders.succession)

    def _is_due(self, orders: GateOrders, touch: Touch, *, is_host: bool) -> bool:
        if is_host:  # an election that nobody has won: this host needs a newer term
            return not touch.has_lease and touch.newest_term > orders.succession.term
        turn = orders.succession.successors.index(self._machine)
        return touch.host_heard_s > VOTE_S + _MARGIN_S + turn * _TURN_S

    def _count(self, succession: Succession) -> int | None:
        running = self._running
        assert running is not None
        if all(may_decide(electorate, running.votes) for electorate in as_electorates(succession)):
            self._running = None
            return running.term
        if self._clock() > running.began_at + _ANSWER_S:
            self._running = None
            self._again_at = self._clock() + 0.3 + 0.7 * self._chance()
        return None
