"""The links of one machine as it reported them last, arranged once: the host reads them every second."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from potluck.meeting.wire import LinkReport

TROUBLED = ("relayed", "down")


@dataclass(frozen=True, slots=True)
class ReportedLinks:
    """One machine's links to the others."""

    by_machine: Mapping[str, LinkReport] = field(default_factory=dict)
    troubled: tuple[str, ...] = ()
    """The machines to which the link is relayed or down: few, where `by_machine` may have hundreds."""

    @classmethod
    def of(cls, reports: Iterable[LinkReport]) -> "ReportedLinks":
        by_machine = {link.machine: link for link in reports}
        return cls(by_machine, tuple(name for name, link in by_machine.items() if link.way in TROUBLED))
