"""Checks of names and addresses: what the machine's own name, the others' names and MASTER_ADDR resolve to."""

import shlex

from potluck.doctor.check import MachineCheck, Verdict, fail, ok, warn
from potluck.doctor.examination import IntendedRun, is_ipv4, is_within, training_interface
from potluck.doctor.finding import Fix, bash, by_hand, export
from potluck.machine.facts import Facts


def own_name(facts: Facts, plan: IntendedRun) -> Verdict:
    """Without Potluck, Gloo listens on the address of the hostname, which must not be a loopback address."""
    known = facts.resolved(facts.hostname)
    looped = [a for a in known.addresses if is_within(a, "127.0.0.0/8")] if known else []
    if not looped:
        return ok(f"{facts.hostname} does not mean a loopback address")
    if not _starts_by_itself(facts):
        return ok(f"{facts.hostname} means {looped[0]}; Potluck gives Gloo an address itself")
    if facts.variables.get("GLOO_SOCKET_IFNAME"):
        return ok(f"{facts.hostname} means {looped[0]}, but GLOO_SOCKET_IFNAME is set")
    return warn(
        f"{facts.hostname} means {looped[0]}, so a plain torch launch listens where no other machine can dial",
        *_name_interface(facts, plan),
        why="MASTER_ADDR is set: without Potluck, Gloo takes the address that the machine's own name means",
    )


def names_resolve(facts: Facts, plan: IntendedRun) -> Verdict:
    """Names of other machines must resolve on this machine."""
    master = facts.variables.get("MASTER_ADDR", "")
    addresses = {peer.name: peer.address for peer in plan.peers}
    lost = [one for one in facts.names if not one.addresses and one.name != facts.hostname]
    if not lost:
        return ok("every name that is needed here is known")
    names = ", ".join(one.name for one in lost)
    fixes: list[Fix] = []
    lines = [f"{addresses[one.name]} {one.name}" for one in lost if one.name in addresses]
    if lines:
        text = shlex.quote("\\n".join(lines) + "\\n")
        target = "tee -a /etc/hosts" if facts.system.is_administrator else "sudo tee -a /etc/hosts"
        fixes.append(bash(facts, f"printf {text} | {target} > /dev/null", note="writes them into the hosts file"))
    if master in addresses:
        fixes.append(export(facts, MASTER_ADDR=addresses[master]))
    if not fixes:
        fixes.append(by_hand(facts.machine, f"use the address instead of {names}; on that machine type: hostname -I"))
    verdict = fail if any(one.name == master for one in lost) else warn
    return verdict(f"{facts.machine} does not know {names}: {lost[0].error}", *fixes)


def somebody_hosts(facts: Facts, plan: IntendedRun) -> Verdict:
    """MASTER_ADDR must be an address of the machine of worker 0; otherwise all workers wait in vain."""
    master, rank = facts.variables.get("MASTER_ADDR", ""), facts.variables.get("RANK")
    if not master:
        return ok("no MASTER_ADDR is set")
    if (size := facts.variables.get("WORLD_SIZE")) and facts.variables.get("LOCAL_WORLD_SIZE") == size:
        return ok("all workers are on this machine")
    known = facts.resolved(master)
    meant = set(known.addresses) if known else {master}
    if rank == "0" and meant and not meant & {*facts.addresses, "127.0.0.1"}:
        interface = training_interface(facts, plan)
        mine = interface.addresses[0].partition("/")[0] if interface and interface.addresses else ""
        fixes = (export(facts, MASTER_ADDR=mine),) if mine else ()
        return fail(
            f"{facts.machine} is worker 0, but MASTER_ADDR={master} is no address of it",
            *fixes,
            why="worker 0 is met at MASTER_ADDR: type the same line on every machine",
        )
    if rank not in (None, "0") and any(is_within(a, "127.0.0.0/8") for a in meant):
        return fail(
            f"{facts.machine} is worker {rank} and looks for worker 0 on itself: MASTER_ADDR={master}",
            by_hand(facts.machine, "set MASTER_ADDR to the address of worker 0; there type: hostname -I"),
        )
    return ok(f"MASTER_ADDR={master} can be right for this machine")


def docker_names(facts: Facts, plan: IntendedRun) -> Verdict:
    """MASTER_ADDR must not be a name or address that Docker Desktop left in the hosts file and no interface has."""
    stale = [one for one in facts.docker_names if not set(one.addresses) & {*facts.addresses, "127.0.0.1"}]
    master = facts.variables.get("MASTER_ADDR", "")
    known = facts.resolved(master)
    meant = set(known.addresses) if known else {master}
    for one in stale:
        if one.name == master or meant & set(one.addresses):
            interface = training_interface(facts, plan)
            mine = interface.addresses[0].partition("/")[0] if interface and interface.addresses else ""
            fix = export(facts, MASTER_ADDR=mine) if mine else by_hand(facts.machine, "use the address on the LAN")
            return fail(f"MASTER_ADDR={master} means {one.addresses[0]}, an address that Docker Desktop left", fix)
    return ok("Docker Desktop's names are not in the way")


def ipv6(facts: Facts, plan: IntendedRun) -> Verdict:
    """A machine may lack IPv6, unless MASTER_ADDR or the host's address needs it."""
    if facts.has_ipv6:
        return ok("IPv6 is there")
    master = facts.variables.get("MASTER_ADDR", "")
    known = facts.resolved(master)
    meant = known.addresses if known and known.addresses else (master, plan.host)
    needed = [address for address in meant if address]
    if needed and not any(is_ipv4(address) for address in needed) and any(":" in address for address in needed):
        return fail(
            f"IPv6 is off on {facts.machine}, and {needed[0]} needs it",
            by_hand(facts.machine, "use the other machine's IPv4 address; there type: hostname -I"),
        )
    return ok("IPv6 is off: the message 'errno: 97 - Address family not supported' is harmless")


def _starts_by_itself(facts: Facts) -> bool:
    """Whether this shell is set up for a launch without Potluck."""
    return "MASTER_ADDR" in facts.variables


def _name_interface(facts: Facts, plan: IntendedRun) -> tuple[Fix, ...]:
    interface = training_interface(facts, plan)
    return (export(facts, GLOO_SOCKET_IFNAME=interface.name),) if interface else ()


NAMING = (
    MachineCheck("hostname-loopback", "the machine's own name means a loopback address", own_name),
    MachineCheck("name-unresolvable", "a name that is needed is not known here", names_resolve),
    MachineCheck("nobody-hosts", "MASTER_ADDR is not where worker 0 is", somebody_hosts),
    MachineCheck("docker-desktop-hosts", "a name means an address that Docker Desktop left", docker_names),
    MachineCheck("ipv6-noise", "IPv6 is off", ipv6),
)
