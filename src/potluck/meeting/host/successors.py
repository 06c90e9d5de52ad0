"""Which machines may take the host's place, and in which order."""

from collections.abc import Collection, Mapping

_NUM_SUCCESSORS = 2
_FORGET_S = 12.0  # a successor that is back sooner keeps its place: its process is ready, and another's needs seconds


class Successors:
    """The successors of one host: those that the user named, or those of the present machines that came first."""

    def __init__(self, host: str, named: Collection[str], known: Collection[str]) -> None:
        self._host = host
        self._named = tuple(named)
        self.names = [name for name in known if name != host]
        self._chosen = list(self.names)
        """In the order in which they were chosen, also while one of them is away."""
        self._preferred = ""

    def choose(self, present: list[str], confirmed_at: Mapping[str, float], now: float) -> None:
        """Bring them up to date; `confirmed_at`: when each machine last confirmed the host."""
        self.names = self._of_the_named(present) if self._named else self._of_the_present(present, confirmed_at, now)

    def prefer(self, machine: str) -> None:
        """Make a machine the first successor."""
        others = [name for name in self.names if name != machine]
        self.names = [machine, *others][: max(_NUM_SUCCESSORS, 1 + len(self._named))]
        self._chosen = list(self.names)
        self._preferred = machine

    def drop(self, machine: str) -> None:
        """A machine is none any more."""
        self.names = [name for name in self.names if name != machine]

    def clear(self) -> None:
        """No machine takes the host's place."""
        self.names = []

    def _of_the_named(self, present: list[str]) -> list[str]:
        names = [self._preferred, *self._named] if self._preferred in present else list(self._named)
        return [name for name in dict.fromkeys(names) if name != self._host]

    def _of_the_present(self, present: list[str], confirmed_at: Mapping[str, float], now: float) -> list[str]:
        here = [name for name in self._chosen if name in present]
        here += [name for name in present if name not in (self._host, *here)]
        here = here[:_NUM_SUCCESSORS]
        away = [
            name
            for name in self._chosen
            if name not in present and now - confirmed_at.get(name, float("-inf")) < _FORGET_S
        ]
        known = [name for name in self._chosen if name in here or name in away]
        self._chosen = [*known, *(name for name in here if name not in known)]
        return [*here, *away]
