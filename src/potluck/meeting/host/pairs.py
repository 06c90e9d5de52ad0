"""How every two machines reach each other, from both machines' reports, and the fix for a link that is not direct."""

from collections.abc import Collection, Mapping
from itertools import combinations
from typing import Any

from potluck.core.errors import MeetingError
from potluck.meeting.host.reported_links import TROUBLED
from potluck.meeting.host.roster import Machine, MachineRoster

_GONE = ("away", "left")


def pair_links(roster: MachineRoster) -> list[dict[str, Any]]:
    """Every pair of present machines: the way between them, which one dialled, and a fix if relayed or down."""
    machines = _present(roster)
    return [_pair(machines, first, second) for first, second in combinations(machines, 2)]


def troubled_links(roster: MachineRoster) -> list[dict[str, Any]]:
    """The pairs of `pair_links` that are relayed or down; quicker than `pair_links` if there are few of them."""
    machines = _present(roster)
    places = {name: place for place, name in enumerate(machines)}
    suspects = {
        tuple(sorted((places[name], places[other])))
        for name, machine in machines.items()
        for other in machine.links.troubled
        if other in places and other != name
    }
    names = list(machines)
    links = [_pair(machines, names[first], names[second]) for first, second in sorted(suspects)]
    return [link for link in links if link["way"] in TROUBLED]


def _present(roster: MachineRoster) -> dict[str, Machine]:
    return {name: machine for name, machine in roster.machines.items() if roster.state(name) not in _GONE}


def _pair(machines: Mapping[str, Machine], first: str, second: str) -> dict[str, Any]:
    told = {one: machines[one].links.by_machine.get(other) for one, other in ((first, second), (second, first))}
    ways = {report.way for report in told.values() if report is not None}
    way = next((way for way in ("here", "direct", "relayed", "down") if way in ways), "unknown")
    trips = [one.round_trip_s for one in told.values() if one is not None and one.round_trip_s is not None]
    found: dict[str, Any] = {
        "machines": [first, second],
        "way": way,
        "dialled_by": next((name for name, one in told.items() if one is not None and one.dialled), None),
        "round_trip_s": min(trips, default=None),
    }
    if way in TROUBLED:
        found["troubles"] = {name: one.trouble for name, one in told.items() if one is not None}
        found["fix"] = "; or ".join(_fix(machines[name]) for name in _easier_to_open(machines, first, second))
    return found


def _fix(machine: Machine) -> str:
    """What to do so that others can dial this machine: a firewall rule, or a port forwarded to it."""
    name, reach = machine.facts.machine, machine.reach
    if reach is None or not reach.is_translated:
        return f"on {name}: {machine.facts.firewall_command}"
    port, address = reach.port, machine.facts.address
    if "WSL2" in machine.facts.os:
        proxy = f"listenport={port} listenaddress=0.0.0.0 connectport={port} connectaddress={address}"
        rule = f"New-NetFirewallRule -DisplayName Potluck -Direction Inbound -Protocol TCP -LocalPort {port}"
        return (
            f"on {name}'s Windows, in PowerShell as administrator: "
            f"netsh interface portproxy add v4tov4 {proxy}; {rule} -RemoteAddress LocalSubnet"
        )
    if machine.facts.is_container:
        return f"on {name}'s computer: start the container with --publish {port}:{port}"
    return f"at {reach.seen_at}, what {name} is behind: forward port {port} to {address}:{port}"


def _easier_to_open(machines: Mapping[str, Machine], first: str, second: str) -> list[str]:
    """The machines that are not behind NAT, else the first: a firewall rule is easier than a forwarded port."""
    untranslated = [name for name in (first, second) if (r := machines[name].reach) and not r.is_translated]
    return untranslated or [first]


def check_direct(roster: MachineRoster, machines: Collection[str]) -> None:
    """Raise if two of the machines cannot dial each other: then gradients cannot go past the gates."""
    for link in troubled_links(roster):
        first, second = link["machines"]
        if {first, second} <= set(machines):
            raise MeetingError(
                f"{first} and {second} cannot dial each other, so gradients cannot go directly",
                fix=f"leave --direct out; or {link['fix']}",
            )


def link_lines(status: dict[str, Any], *, with_direct: bool = True) -> list[str]:
    """Lines for people: all direct links in one line, each other link with its fix."""
    links = status["links"]
    direct = [f"{'-'.join(link['machines'])}{_trip(link)}" for link in links if link["way"] in ("direct", "here")]
    lines = [f"links, direct and encrypted: {', '.join(direct)}"] if direct and with_direct else []
    for link in links:
        first, second = link["machines"]
        if link["way"] == "relayed":
            lines.append(f"link {first}-{second} goes through {status['host']}: neither can dial the other")
        elif link["way"] == "down":
            lines.append(f"link {first}-{second} is down: {first} and {second} cannot train together")
        if link["way"] in TROUBLED:
            lines.append(f"  to make it direct, {link['fix']}")
    return lines


def is_about_link(line: str) -> bool:
    """Whether `link_lines` made this line about a relayed or down link; a status shows it once, not for each run."""
    return line.startswith(("link ", "  to make it direct, "))


def _trip(link: dict[str, Any]) -> str:
    return "" if link["round_trip_s"] is None else f" ({1000 * link['round_trip_s']:.1f} ms)"
