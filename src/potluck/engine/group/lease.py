"""The lease of a worker that trains alone: it asks for a quorum every two seconds instead of in every step."""

import time

LEASE_S = 2.0
"""More than the lighthouse's heartbeat timeout (1 s), less than its wait for members that have not asked (120 s)."""

_OTHERS_S = 20.0  # the time in which the other workers of a run start

# A laptop that slept must ask at once, and only CLOCK_BOOTTIME goes on during sleep.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Lease:
    """How long a worker that is alone in its group may commit steps without a quorum and a commit vote.

    The worker's heartbeats go on, so that no other group can form without it. A newcomer waits for the lease to end.
    """

    def __init__(self, expected: int) -> None:
        self._until_s = 0.0
        self._expected = expected
        self._has_met_all = expected <= 1
        self._others_until_s = time.monotonic() + _OTHERS_S

    @property
    def is_valid(self) -> bool:
        return time.clock_gettime(_CLOCK) < self._until_s

    def met(self, num_members: int) -> None:
        """Record a committed step of `num_members` workers."""
        self._has_met_all = self._has_met_all or num_members >= self._expected

    def renew(self) -> None:
        """Start a new lease: the lighthouse, or a plan that all workers agreed on, says that no other worker trains.

        No lease while workers of this start are still expected: a worker that resumes from a checkpoint must not finish
        before the others have begun.
        """
        if self._has_met_all or time.monotonic() > self._others_until_s:
            self._until_s = time.clock_gettime(_CLOCK) + LEASE_S
