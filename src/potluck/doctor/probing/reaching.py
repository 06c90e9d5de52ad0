"""Examine this machine together with machines that run `potluck doctor --listen`."""

import socket
from collections.abc import Sequence

from potluck.core.environment import DEFAULT_PORT
from potluck.doctor.examination import OPEN, REFUSED, SILENT, UNREACHABLE, Examination, IntendedRun, MissingAnswer
from potluck.doctor.probing.asks import StationLostError
from potluck.doctor.probing.channel import RemoteStation
from potluck.doctor.probing.conducting import Seat, examine_stations
from potluck.doctor.probing.dialling import outcome_of, try_port
from potluck.doctor.probing.listening import Target, connect, parse_target
from potluck.doctor.probing.station import LocalStation

_OUTCOMES = {
    OPEN: ("it listens, but its token is missing", "copy the whole line that potluck doctor --listen printed there"),
    REFUSED: ("it is there, but nobody listens on port {port}", "on it type: potluck doctor --listen"),
    SILENT: (
        "nothing comes back from port {port}",
        "see that it is switched on, awake and plugged in, and type on it: potluck doctor --listen; if it does listen, "
        "its firewall drops what comes from here: potluck doctor --fix-script linux on it prints the rules",
    ),
    UNREACHABLE: (
        "there is no route to it",
        "see that it is switched on, awake and plugged in, that the router does not keep Wi-Fi clients apart, and that "
        "no firewall on it rejects",
    ),
}


def reach_machines(texts: Sequence[str], plan: IntendedRun, *, with_torch: bool = True) -> Examination:
    """Examine this machine, the listening machines, and the links between them."""
    targets = [parse_target(text) for text in texts]
    absent: dict[str, MissingAnswer] = {}
    remote: list[RemoteStation] = []
    seats: list[Seat] = []
    own_address = "127.0.0.1"
    local = LocalStation()
    try:
        for target in targets:
            try:
                station, address, own_address = _connect(target)
            except StationLostError as error:
                absent[target.address] = error.absence
                continue
            remote.append(station)
            seats.append(Seat(station, address, target.port))
        here = Seat(local, own_address, DEFAULT_PORT)
        # No all-reduce: gates carry connections between workers, and machines have gates only after they have joined.
        return examine_stations([here, *seats], plan=plan, absent=absent, with_torch=with_torch, with_all_reduce=False)
    finally:
        local.close()
        for station in remote:
            station.close()


def _connect(target: Target) -> tuple[RemoteStation, str, str]:
    """Connect to a target as `connect` does; StationLostError says why the target cannot be examined."""
    try:
        socket.getaddrinfo(target.address, target.port)
    except socket.gaierror as error:
        raise StationLostError(
            f"its name is not known here ({error.strerror})", fix="use its address; on it type: hostname -I"
        ) from None
    if target.token:
        try:
            return connect(target)
        except OSError as error:
            outcome = outcome_of(error)
    else:
        outcome = try_port(target.address, target.port)
    why, fix = _OUTCOMES[outcome]
    raise StationLostError(why.format(port=target.port), fix=fix)
