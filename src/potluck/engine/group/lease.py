"""A worker that trains alone: it asks the lighthouse who is here every two seconds instead of in every step."""

import time

LEASE_S = 2.0
"""More than a lighthouse takes to forget who left (1 s), less than it waits for those who have not asked (15 s)."""

_OTHERS_S = 20.0  # for the other workers of a run to start

# A laptop that slept must ask at once, and only this clock goes on while it sleeps.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Lease:
    """How long a worker whose group is itself alone may commit steps without a quorum and without a commit vote.

    Its heartbeats go on, so that no other group can form without it. Whoever wants to join waits for the next question.
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
        """A step with so many workers is done."""
        self._has_met_all = self._has_met_all or num_members >= self._expected

    def renew(self) -> None:
        """The lighthouse, or a plan that all workers agreed on, says that nobody else is here.

        While workers of this start are still to come, every step asks for them: a worker that has a checkpoint must
        not be through before the others have begun.
        """
        if self._has_met_all or time.monotonic() > self._others_until_s:
            self._until_s = time.clock_gettime(_CLOCK) + LEASE_S
