"""Checks of network interfaces: the one that training would use, and the one that environment variables force."""

from potluck.core.environment import DEFAULT_PORT
from potluck.doctor.check import MachineCheck, Verdict, fail, ok, unknown, warn
from potluck.doctor.checks.windows import behind_wsl, vpn_address
from potluck.doctor.examination import IntendedRun, is_on_bridge, is_within, training_interface
from potluck.doctor.finding import Fix, bash, by_hand, export
from potluck.machine.facts import BRIDGE, LOOPBACK, TUNNEL, VIRTUAL, WIRED, WIRELESS, Facts, Interface

_DEAD_ENDS = (BRIDGE, VIRTUAL, LOOPBACK)
_GIGABIT = 1000


def gloo_name(facts: Facts, plan: IntendedRun) -> Verdict:
    """GLOO_SOCKET_IFNAME must be one exact interface name, without the prefixes and ^ that NCCL allows."""
    wanted = facts.variables.get("GLOO_SOCKET_IFNAME")
    if not wanted:
        return ok("GLOO_SOCKET_IFNAME is not set")
    if facts.interface(wanted) is not None:
        return ok(f"GLOO_SOCKET_IFNAME={wanted} is an interface of this machine")
    return fail(
        f"GLOO_SOCKET_IFNAME={wanted} is no interface of {facts.machine}; it has {_names(facts)}",
        *_export(facts, plan, "GLOO_SOCKET_IFNAME"),
        why="Gloo wants one exact name: no ^, no prefix" if wanted.startswith(("^", "=")) else "",
    )


def nccl_name(facts: Facts, plan: IntendedRun) -> Verdict:
    """NCCL_SOCKET_IFNAME (prefixes, =exact names or ^exclusions) must match an interface."""
    wanted = facts.variables.get("NCCL_SOCKET_IFNAME")
    if not wanted:
        return ok("NCCL_SOCKET_IFNAME is not set: Potluck sets it to the interface on the route to the others")
    usable = [one.name for one in facts.interfaces if one.is_up and one.addresses and one.kind != LOOPBACK]
    if any(_nccl_takes(wanted, name) for name in usable):
        return ok(f"NCCL_SOCKET_IFNAME={wanted} matches an interface")
    return fail(
        f"NCCL_SOCKET_IFNAME={wanted} matches no interface of {facts.machine}; it has {_names(facts)}",
        *_export(facts, plan, "NCCL_SOCKET_IFNAME", "="),
        why="the value is each machine's own",
    )


def leads_somewhere(facts: Facts, plan: IntendedRun) -> Verdict:
    """Gloo must not use an interface that leads to no other machine: a container bridge, or a link-local address."""
    right = training_interface(facts, plan)
    forced = facts.variables.get("GLOO_SOCKET_IFNAME")
    chosen = facts.interface(forced) if forced else None
    how = f"GLOO_SOCKET_IFNAME={forced}"
    if chosen is None and "MASTER_ADDR" in facts.variables and not forced:
        chosen, how = _by_hostname(facts), f"{facts.hostname}, by which Gloo chooses,"
    if chosen is None or right is None or chosen.name == right.name or chosen.kind == LOOPBACK:
        return ok("no variable or name leads to a wrong interface")
    if chosen.kind in _DEAD_ENDS or _is_link_local(chosen) or chosen.has_carrier is False:
        return fail(
            f"{how} means {chosen.name} ({chosen.kind}), which leads to no other machine; {right.name} does",
            export(facts, GLOO_SOCKET_IFNAME=right.name),
        )
    return warn(
        f"{how} means {chosen.name}, but the others are reached through {right.name}",
        export(facts, GLOO_SOCKET_IFNAME=right.name),
    )


def has_network(facts: Facts, plan: IntendedRun) -> Verdict:
    """At least one interface must be up, with an address and a carrier."""
    real = [one for one in facts.interfaces if one.kind in (WIRED, WIRELESS, TUNNEL)]
    if any(one.is_up and one.has_carrier is not False and one.addresses for one in real):
        return ok("an interface is up and has an address")
    if not facts.interfaces:
        return unknown("the interfaces could not be listed")
    down = next((one for one in real if not one.is_up and one.addresses), None)
    if down is not None:
        fix = bash(facts, f"ip link set dev {down.name} up", root=True)
        return fail(f"{down.name} of {facts.machine} is switched off", fix)
    unplugged = next((one for one in real if one.is_up and one.has_carrier is False), None)
    if unplugged is not None:
        fix = by_hand(facts.machine, f"plug in the cable of {unplugged.name}, or join the Wi-Fi")
        return fail(f"{unplugged.name} of {facts.machine} has no carrier: the cable is out", fix)
    return fail(
        f"no interface of {facts.machine} has an IPv4 address",
        by_hand(facts.machine, "join the Wi-Fi, or give the cable an address: see docs/cable.md"),
    )


def loopback(facts: Facts, plan: IntendedRun) -> Verdict:
    """Workers listen on addresses of 127.0.0.0/8, which Linux takes as soon as its loopback interface is up."""
    if facts.loopback is None:
        return unknown("the loopback interface was not tried")
    if not facts.loopback:
        return ok("the loopback interface takes a cluster's addresses")
    return fail(
        f"the loopback interface of {facts.machine} does not take a cluster's addresses: {facts.loopback}",
        bash(facts, "ip link set dev lo up", root=True),
        why="workers listen on 127.0.0.0/8 only; the gate carries what other machines send",
    )


def can_host(facts: Facts, plan: IntendedRun) -> Verdict:
    """Others must be able to dial the host; behind WSL2's NAT or on a container's bridge a machine can only join."""
    behind = _behind(facts)
    if behind is None:
        return ok("other machines can dial this one, as far as it knows")
    where, fix = behind
    on_vpn = vpn_address(facts)
    if on_vpn is not None:
        return ok(f"{where}, but has a VPN: machines on it can dial this one (potluck host --address {on_vpn})")
    if not plan.is_host:
        return ok(f"{where}: it can join and train; to host, others would have to reach its port")
    return fail(
        f"{facts.machine} is to be the host, but {where}: other machines cannot dial it",
        fix,
        by_hand(facts.machine, "or host on another machine: this one can join and train as it is"),
    )


def wireless(facts: Facts, plan: IntendedRun) -> Verdict:
    """Wi-Fi's rate changes from second to second, and every step waits for the slowest link."""
    interface = training_interface(facts, plan)
    if interface is None or interface.kind != WIRELESS:
        return ok("training traffic does not go over Wi-Fi")
    cable = next((one for one in facts.interfaces if one.kind == WIRED and one.is_up and one.has_carrier), None)
    extra = f"; {cable.title} is plugged in, use its address" if cable else ""
    speed = f" at {interface.speed_mbit} Mbit/s" if interface.speed_mbit else ""
    return warn(
        f"{facts.machine} reaches the others over Wi-Fi ({interface.title}{speed})",
        by_hand(facts.machine, f"use a cable: a step's exchange shrinks with the link's rate{extra}"),
        why="every step waits for the slowest link, and Wi-Fi's rate changes from second to second",
    )


def link_speed(facts: Facts, plan: IntendedRun) -> Verdict:
    """A cable that negotiated less than it should: four wires instead of eight, or half duplex."""
    interface = training_interface(facts, plan)
    if interface is None or interface.kind != WIRED or interface.speed_mbit is None:
        return ok("no slow cable is known")
    if interface.speed_mbit >= _GIGABIT and not interface.is_half_duplex:
        return ok(f"{interface.title} runs at {interface.speed_mbit} Mbit/s")
    duplex = ", half duplex" if interface.is_half_duplex else ""
    see = "in PowerShell: Get-NetAdapter" if interface.adapter else f"ethtool {interface.name}"
    return warn(
        f"{interface.title} on {facts.machine} runs at {interface.speed_mbit} Mbit/s{duplex}",
        by_hand(facts.machine, f"use a cable of category 5e or better and a gigabit port; see: {see}"),
    )


def vpn(facts: Facts, plan: IntendedRun) -> Verdict:
    """A VPN on the route to the other machines slows traffic down and makes packets smaller."""
    interface = training_interface(facts, plan)
    if interface is None or interface.kind != TUNNEL:
        return ok("no VPN takes the route to the others")
    return warn(
        f"{facts.machine} reaches the others through {interface.name}, a VPN with an MTU of {interface.mtu}",
        by_hand(facts.machine, "if the others are in this house, let the VPN leave the local network alone"),
    )


def _behind(facts: Facts) -> tuple[str, Fix] | None:
    """Why other machines cannot dial this one, and the fix that lets one port through; None if they can."""
    if facts.wsl is not None:
        return behind_wsl(facts)
    if not is_on_bridge(facts.system, facts.addresses):
        return None
    publish = f"{facts.system.container} run --publish {DEFAULT_PORT}:{DEFAULT_PORT} ..."
    return "it is a container on a bridge", by_hand(
        facts.machine,
        f"start it with: {publish}, and host with its computer's address: potluck host --advertise 192.168.1.10",
    )


def _nccl_takes(pattern: str, name: str) -> bool:
    excluded, exact = pattern.startswith("^"), "=" in pattern[:2]
    words = [word for word in pattern.lstrip("^=").split(",") if word]
    hit = any(name == word if exact else name.startswith(word) for word in words)
    return hit != excluded


def _by_hostname(facts: Facts) -> Interface | None:
    known = facts.resolved(facts.hostname)
    meant = set(known.addresses) if known else set()
    return next((i for i in facts.interfaces if meant & {a.partition("/")[0] for a in i.addresses}), None)


def _is_link_local(interface: Interface) -> bool:
    return bool(interface.addresses) and all(is_within(a, "169.254.0.0/16") for a in interface.addresses)


def _names(facts: Facts) -> str:
    return ", ".join(one.name for one in facts.interfaces if one.is_up and one.kind != LOOPBACK) or "none"


def _export(facts: Facts, plan: IntendedRun, variable: str, prefix: str = "") -> tuple[Fix, ...]:
    interface = training_interface(facts, plan)
    return (export(facts, **{variable: prefix + interface.name}),) if interface else ()


INTERFACES = (
    MachineCheck("ifname-invalid", "GLOO_SOCKET_IFNAME names no interface", gloo_name),
    MachineCheck("nccl-ifname", "NCCL_SOCKET_IFNAME matches no interface", nccl_name),
    MachineCheck("virtual-interface", "an interface that leads nowhere is chosen", leads_somewhere),
    MachineCheck("no-network", "no interface is up with an address", has_network),
    MachineCheck("loopback", "the loopback interface does not take a cluster's addresses", loopback),
    MachineCheck("cannot-host", "other machines cannot dial this one, which is to be the host", can_host),
    MachineCheck("wifi", "training traffic goes over Wi-Fi", wireless),
    MachineCheck("link-speed", "a cable slower than a gigabit", link_speed),
    MachineCheck("vpn-route", "a VPN takes the route to the others", vpn),
)
