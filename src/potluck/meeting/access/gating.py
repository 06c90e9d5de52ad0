"""Helpers for a machine's gate: open its port, turn the host's orders into its settings, report its links."""

import socket
from collections.abc import Iterable

from potluck.core.errors import GateError
from potluck.gates.messages import ClusterMachine, Electorate, HandedOut, LinkState, Settings
from potluck.meeting.access.networks import best_first, read_interfaces
from potluck.meeting.wire import GateOrders, LinkReport, Reach, Report, Succession, Voters

_NUM_TRIED = 20
_EVERYWHERE = "0.0.0.0"  # noqa: S104  a gate lets only members in, and a laptop's addresses change


def as_settings(
    orders: GateOrders,
    machine: str,
    *,
    first: str = "",
    service: str = "",
    handed_out: HandedOut | None = None,
    promised: int = 0,
) -> Settings:
    """Gate settings from the host's orders; the host's address `first` is dialled before its others.

    `promised`: the newest term for which this machine has promised its vote.
    """
    members = []
    for one in orders.members:
        known = [first] if first and one.machine == orders.host else []
        members.append(
            ClusterMachine(
                machine=one.machine,
                number=one.number,
                certificate=one.certificate,
                addresses=tuple(dict.fromkeys([*known, *one.addresses])),
                port=one.port,
            )
        )
    return Settings(
        machine=machine,
        host=orders.host,
        block=orders.block,
        members=tuple(members),
        runs={run: tuple(machines) for run, machines in orders.runs.items()},
        service=service,
        handed_out=handed_out,
        term=orders.succession.term,
        promised=promised,
        electorates=as_electorates(orders.succession),
    )


def as_electorates(succession: Succession) -> tuple[Electorate, ...]:
    """Who decides about the host, as gates know it."""
    return tuple(as_electorate(one) for one in succession.electorates)


def as_electorate(voters: Voters) -> Electorate:
    """One set of voters, as gates know it."""
    return Electorate(voters=tuple(voters.machines), tie_breaker=voters.tie_breaker)


def bind_gate(wanted: int, *, is_fixed: bool) -> socket.socket:
    """Listen on the wanted port, this machine's only one; unless `is_fixed`, on the next free port if it is taken."""
    last: OSError | None = None
    for port in range(wanted, wanted + (1 if is_fixed else _NUM_TRIED)):
        try:
            return socket.create_server((_EVERYWHERE, port), backlog=512)
        except OSError as error:
            last = error
    assert last is not None
    raise GateError(
        f"port {wanted} of this machine cannot be used: {(last.strerror or str(last)).lower()}",
        fix=f"see who has it: ss -ltnp 'sport = :{wanted}'; or choose another: potluck join --port {wanted + 100}",
    )


def own_reach(port: int) -> Reach:
    """Addresses and port at which other machines may dial this machine's gate."""
    return Reach(addresses=[interface.address for interface in best_first(read_interfaces())], port=port)


def without_times(report: Report) -> Report:
    """The report without round-trip times: a report that differs only in these is not worth sending."""
    links = [link.model_copy(update={"round_trip_s": None}) for link in report.links]
    return report.model_copy(update={"links": links})


def link_reports(links: Iterable[LinkState]) -> list[LinkReport]:
    """This machine's links to the others, as its gate reports them."""
    return [
        LinkReport(
            machine=link.machine,
            way=link.way,
            dialled=link.dialled,
            round_trip_s=None if link.round_trip_s is None else round(link.round_trip_s, 4),
            trouble=link.trouble[:300],
        )
        for link in links
    ]
