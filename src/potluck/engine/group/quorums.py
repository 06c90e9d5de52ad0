"""Distinguishes quorums of a restarted lighthouse from earlier ones: every lighthouse numbers its quorums from 1."""

import time
from enum import Enum, auto
from typing import Any, NamedTuple

from potluck.engine.group.forming import RosteredGroup

_NONE = -1  # the number of a group before torchft has formed one


class Quorum(NamedTuple):
    """The part of the lighthouse's answer that is the same for all members of a quorum."""

    number: int
    replicas: tuple[str, ...]
    is_even: bool
    """Whether all members are at the same step."""


class QuorumChoice(Enum):
    """What a worker does with a quorum."""

    BY_NUMBER = auto()
    """torchft's own rule: form the process group anew if the quorum's number has changed."""
    FORM_ANEW = auto()
    DECLINE = auto()
    """Spoil this step, so that the next quorum has a number that is new to all."""


class QuorumHistory:
    """Judges each quorum by those before it, so that all members of a quorum form a group, or none does.

    Lighthouse 1 gave number 3 to the workers A, B and C. A is the first to find lighthouse 2, which gives numbers 1 and
    2 to A alone, and 3 to all. To B and C that looks like the quorum that they are in: by the number alone B and C
    would keep their old group, while A would wait for them in a new one until it times out.
    """

    def __init__(self) -> None:
        self._last: Quorum | None = None
        self._former: Quorum | None = None
        """The last quorum of the previous lighthouse, until all its members have been in quorums of the present one."""
        self._seen: set[str] = set()
        self.new_since = float("-inf")
        """time.monotonic of the present lighthouse's first quorum, if there was a lighthouse before."""

    def judge(self, quorum: Quorum) -> QuorumChoice:
        last, self._last = self._last, quorum
        verdict = QuorumChoice.BY_NUMBER
        if last is not None and is_of_new_lighthouse(last, quorum):
            self._former, self._seen = last, set()
            self.new_since = time.monotonic()
            verdict = QuorumChoice.FORM_ANEW
        elif quorum.is_even and self._former is not None and quorum[:2] == self._former[:2]:
            # A worker that comes straight from the former lighthouse would keep its old group in exactly this case.
            verdict = QuorumChoice.DECLINE
        self._seen |= set(quorum.replicas)
        if self._former is not None and self._seen >= set(self._former.replicas):
            self._former = None
        return verdict


def is_of_new_lighthouse(last: Quorum, quorum: Quorum) -> bool:
    """Whether the lighthouse was restarted between two successive quorums of a worker.

    A lighthouse never counts down. It gives another number when the members change, and when a member's step has
    failed; only a failed step puts a member behind the others.
    """
    if quorum.number != last.number:
        return quorum.number < last.number
    return quorum.replicas != last.replicas or not quorum.is_even


class QuorumClient:
    """Wraps the client through which torchft's Manager asks for a quorum, and judges each quorum by the history.

    torchft calls `_quorum` on its own thread, right before `RosteredGroup.configure`.
    """

    def __init__(self, manager: Any, group: RosteredGroup) -> None:
        self._manager = manager
        self._group = group
        self._client = manager._client
        self._has_declined = False
        self.history = QuorumHistory()

    def _quorum(self, **question: Any) -> Any:
        """Ask for a quorum and judge it; the name is torchft's."""
        answer = self._client._quorum(**question)
        is_even = answer.max_world_size == answer.replica_world_size
        verdict = self.history.judge(Quorum(answer.quorum_id, tuple(answer.replica_ids), is_even))
        self._group.new_lighthouse_since = self.history.new_since
        if verdict is QuorumChoice.FORM_ANEW or self._has_declined:
            self._manager._quorum_id = _NONE
        self._has_declined = verdict is QuorumChoice.DECLINE
        if self._has_declined:
            self._manager._quorum_id = answer.quorum_id  # the same number, so that torchft forms no group
            self._manager.report_error(RuntimeError("others take this quorum for one of the lighthouse before"))
        return answer

    def should_commit(self, _rank: int, _step: int, vote: bool, **_: Any) -> bool:
        """The vote of all processes of this worker's replica group: it is the only one, so nobody has to be asked."""
        return vote

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)
