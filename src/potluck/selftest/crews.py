"""Which workers train together in a self-test, for the devices and backends of one machine."""

from collections.abc import Sequence
from dataclasses import dataclass

CPU = "cpu"
_MOST = 8  # workers of a crew: more cards of one kind show nothing new, and take longer


@dataclass(frozen=True, slots=True)
class Crew:
    """Workers that train together: one for each device that is named, and the backend of their exchange."""

    devices: tuple[str, ...]
    backend: str

    @property
    def name(self) -> str:
        """For tables: `2 workers on cpu, gloo`."""
        return f"{_named(self.devices)}, {self.backend}"

    @property
    def is_mixed(self) -> bool:
        """Whether the CPU and an accelerator train together."""
        return len({device.partition(":")[0] for device in self.devices}) > 1


def crews_of(accelerators: Sequence[str], backends: Sequence[str]) -> list[Crew]:
    """Workers of one kind, for the CPU and for the accelerators with each backend; then both kinds together."""
    crews = [Crew((CPU, CPU), "gloo")]
    cards = tuple(accelerators[:_MOST])
    if cards:
        # Two workers can share a card, but NCCL refuses to.
        crews.append(Crew(cards if len(cards) > 1 else cards * 2, "gloo"))
        if len(cards) > 1 and "nccl" in backends:
            crews.append(Crew(cards, "nccl"))
        crews.append(Crew((*cards, CPU), "gloo"))
    return crews


def uneven_shares(num_workers: int, batch: int) -> tuple[int, ...]:
    """Shares of which each is about a third of the one before; all samples of the batch are taken."""
    shares = [max(1, batch // 4 // 3**number) for number in range(num_workers - 1)]
    return (batch - sum(shares), *shares)


def _named(devices: Sequence[str]) -> str:
    kinds: dict[str, list[str]] = {}
    for device in devices:
        kinds.setdefault(device.partition(":")[0], []).append(device)
    parts = []
    for kind, members in kinds.items():
        if len(set(members)) < len(members):
            parts.append(f"{len(members)} workers on {members[0]}")
        else:
            parts.append(members[0] if len(members) == 1 else f"{len(members)} {kind}")
    return " + ".join(parts)
