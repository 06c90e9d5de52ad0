"""The link between two networks of a lab that is up: its rate, and a cut between two homes."""

from lab import wiring
from lab.cluster import Uplink
from lab.namespaces import run_in_network_of

_MTU = 1500


class UplinkCable:
    """The cable between two switches; it has a rate in each direction, and can be cut."""

    def __init__(self, switch_pid: int, index: int, uplink: Uplink) -> None:
        self._switch_pid = switch_pid
        self._ends = wiring.uplink_ends(index)
        run_in_network_of(switch_pid, ["ip", "-batch", "-"], text_in=wiring.uplink_batch(index, uplink))
        self.limit_rate(uplink.rate_bits_per_s)

    def limit_rate(self, rate_bits_per_s: int | None) -> None:
        """Give the uplink another rate in both directions, from now on; None lifts the limit."""
        for end in self._ends:
            batch = wiring.rate_batch(end, rate_bits_per_s, _MTU)
            run_in_network_of(self._switch_pid, ["tc", "-batch", "-"], text_in=batch)

    def cut(self) -> None:
        """Separate the two networks: machines of one reach nobody in the other."""
        self._set("down")

    def mend(self) -> None:
        """Join the two networks again."""
        self._set("up")

    def _set(self, setting: str) -> None:
        run_in_network_of(self._switch_pid, ["ip", "link", "set", self._ends[0], setting])
