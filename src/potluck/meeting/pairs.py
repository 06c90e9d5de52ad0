"""How every two machines of a cluster reach each other, from what both tell, and what would end a relay."""

from collections.abc import Collection
from itertools import combinations
from typing import Any

from potluck.core.errors import MeetingError
from potluck.meeting.roster import Machine, Roster
from potluck.meeting.wire import LinkReport

_GONE = ("away", "left")


def pair_links(roster: Roster) -> list[dict[str, Any]]:
    """Every pair of machines that are here: the way between them, who dialled, and the fix where nobody can."""
    present = [name for name in roster.machines if roster.state(name) not in _GONE]
    return [_pair(roster, first, second) for first, second in combinations(present, 2)]


def _pair(roster: Roster, first: str, second: str) -> dict[str, Any]:
    machines = roster.machines
    told = {first: _report(machines[first], second), second: _report(machines[second], first)}
    ways = {report.way for report in told.values() if report is not None}
    way = next((way for way in ("here", "direct", "relayed", "down") if way in ways), "unknown")
    trips = [one.round_trip_s for one in told.values() if one is not None and one.round_trip_s is not None]
    found: dict[str, Any] = {
        "machines": [first, second],
        "way": way,
        "dialled_by": next((name for name, one in told.items() if one is not None and one.dialled), None),
        "round_trip_s": min(trips, default=None),
    }
    if way in ("relayed", "down"):
        target = _easier_to_open(machines, first, second)
        found["troubles"] = {name: one.trouble for name, one in told.items() if one is not None}
        found["fix"] = _fix(machines[target])
    return found


def _fix(machine: Machine) -> str:
    """What would let others dial this machine: a rule of its firewall, or a port forwarded to it."""
    name, reach = machine.facts.machine, machine.reach
    if reach is None or not reach.is_translated:
        return f"on {name}: {machine.facts.let_in}"
    port, address = reach.port, machine.facts.address
    if "WSL2" in machine.facts.os:
        proxy = f"listenport={port} listenaddress=0.0.0.0 connectport={port} connectaddress={address}"
        rule = f"New-NetFirewallRule -DisplayName Potluck -Direction Inbound -Protocol TCP -LocalPort {port}"
        return (
            f"on {name}'s Windows, in PowerShell as administrator: "
            f"netsh interface portproxy add v4tov4 {proxy}; {rule} -RemoteAddress LocalSubnet"
        )
    return f"at {reach.seen_at}, what {name} is behind: forward port {port} to {address}:{port}"


def _report(machine: Machine, other: str) -> LinkReport | None:
    return next((link for link in machine.links if link.machine == other), None)


def _easier_to_open(machines: dict[str, Machine], first: str, second: str) -> str:
    """One that the host sees at its own address, if there is one: a rule of a firewall is easier than a router's."""
    return next((name for name in (first, second) if (r := machines[name].reach) and not r.is_translated), first)


def check_direct(roster: Roster, machines: Collection[str]) -> None:
    """Refuse to send gradients past the gates where machines cannot dial each other at all."""
    for link in pair_links(roster):
        first, second = link["machines"]
        if {first, second} <= set(machines) and link["way"] in ("relayed", "down"):
            raise MeetingError(
                f"{first} and {second} cannot dial each other, so gradients cannot go directly",
                fix=f"leave --direct out; or {link['fix']}",
            )


def link_lines(status: dict[str, Any], *, with_direct: bool = True) -> list[str]:
    """For people: direct links in one line, each of the others with its fix."""
    links = status["links"]
    direct = [f"{'-'.join(link['machines'])}{_trip(link)}" for link in links if link["way"] in ("direct", "here")]
    lines = [f"links, direct and encrypted: {', '.join(direct)}"] if direct and with_direct else []
    for link in links:
        first, second = link["machines"]
        if link["way"] == "relayed":
            lines.append(f"link {first}-{second} goes through {status['host']}: neither can dial the other")
        elif link["way"] == "down":
            lines.append(f"link {first}-{second} is down: {first} and {second} cannot train together")
        if link["way"] in ("relayed", "down"):
            lines.append(f"  to make it direct, {link['fix']}")
    return lines


def _trip(link: dict[str, Any]) -> str:
    return "" if link["round_trip_s"] is None else f" ({1000 * link['round_trip_s']:.1f} ms)"
