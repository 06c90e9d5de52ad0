"""The network of a cluster as commands for ip, tc and nft: pure functions, nothing is run here."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.cluster import MAIN_NETWORK, Cluster, FirewallRule, Link, MachineSpec

# Every lab has these addresses to itself: no interface of a lab is in the computer's own network namespace.
LAB_ADDRESSES = ipaddress.IPv4Network("10.77.0.0/16")
QUEUE_MS = 50  # what a sender may have waiting before packets are dropped
BURST_MS = 1  # a link may catch up this much after being idle
# Below two full frames nothing would ever pass.
MIN_BURST_FRAMES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A place in a switch, with the cable to one interface of one machine."""

    name: str
    machine: str
    link: Link
    address: str  # of the machine's end, with its prefix


def plan_ports(cluster: Cluster) -> tuple[Port, ...]:
    """Number the switch's ports and give each machine one address in each network that it is in."""
    networks = list(
        dict.fromkeys([MAIN_NETWORK, *(link.network for machine in cluster.machines for link in machine.links)])
    )
    subnets = dict(zip(networks, LAB_ADDRESSES.subnets(new_prefix=24), strict=False))
    ports: list[Port] = []
    for number, machine in enumerate(cluster.machines, start=1):
        for link in machine.links:
            address = f"{subnets[link.network][number]}/24"
            ports.append(Port(name=f"port{len(ports) + 1}", machine=machine.name, link=link, address=address))
    return tuple(ports)


def bare(address: str) -> str:
    """An address without its prefix."""
    return address.partition("/")[0]


def addresses_of(ports: Sequence[Port]) -> dict[str, tuple[str, ...]]:
    """Each machine's addresses, the main one first."""
    names = dict.fromkeys(port.machine for port in ports)
    return {name: tuple(bare(port.address) for port in ports if port.machine == name) for name in names}


def switch_batch(ports: Sequence[Port], holder_pids: Mapping[str, int]) -> str:
    """For `ip -batch` in the switch's namespace: a bridge for each network, a cable to each machine."""
    lines = [
        line
        for network in dict.fromkeys(port.link.network for port in ports)
        for line in (f"link add {network} type bridge forward_delay 0", f"link set {network} up")
    ]
    for port in ports:
        mtu, pid = port.link.mtu, holder_pids[port.machine]
        lines += [
            f"link add {port.name} mtu {mtu} type veth peer name {port.link.interface} mtu {mtu} netns {pid}",
            f"link set {port.name} master {port.link.network} up",
        ]
    return _batch(lines)


def machine_batch(machine: MachineSpec, ports: Sequence[Port]) -> str:
    """For `ip -batch` in a machine's namespace: its addresses, and interfaces that lead nowhere."""
    lines = ["link set lo up"]
    for end in machine.dead_ends:
        # A bridge has no carrier, as docker0 without containers, once its last port has left; Docker's own address.
        hardware = "02:42:" + ":".join(f"{int(part):02x}" for part in bare(end.address).split("."))
        lines += [
            f"link add {end.interface} address {hardware} type bridge",
            "link add passing type veth peer name passing2",
            f"link set passing master {end.interface}",
            "link del passing",
            f"addr add {end.address} brd + dev {end.interface}",
            f"link set {end.interface} up",
        ]
    for port in ports:
        if port.machine == machine.name:
            interface = port.link.interface
            lines += [f"addr add {port.address} brd + dev {interface}", f"link set {interface} up"]
    return _batch(lines)


def rate_batch(interface: str, rate_bits_per_s: int | None, mtu: int) -> str:
    """For `tc -batch` on one end of a cable: a token bucket of that rate, or none.

    The bucket holds a millisecond's worth. At 1 Gbit/s that passes the 64 kB packets that the kernel builds to save
    work; on a slower link the kernel cuts them up, and a message that fits the bucket does not get through for free.
    """
    if rate_bits_per_s is None:
        return _batch([f"qdisc replace dev {interface} root pfifo"])
    burst_bytes = max(rate_bits_per_s * BURST_MS // 8000, MIN_BURST_FRAMES * (mtu + 14))
    return _batch(
        [f"qdisc replace dev {interface} root tbf rate {rate_bits_per_s}bit burst {burst_bytes} latency {QUEUE_MS}ms"]
    )


def hosts_file(machine: MachineSpec, cluster: Cluster, addresses: Mapping[str, Sequence[str]]) -> str:
    """The machine's /etc/hosts: its own name the way Debian or a careful person writes it, then whom it knows."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    if machine.own_name == "loopback":
        lines.append(f"127.0.1.1 {machine.hostname}")
    elif machine.own_name == "address":
        lines.append(f"{addresses[machine.name][0]} {machine.hostname}")
    for other in cluster.machines:
        if other.name in machine.resolves:
            names = dict.fromkeys((other.hostname, other.name))
            lines.append(f"{addresses[other.name][0]} {' '.join(names)}")
    return "\n".join(lines) + "\n"


def firewall_script(rules: Sequence[FirewallRule], addresses: Mapping[str, Sequence[str]]) -> str:
    """For `nft -f`: replace the machine's firewall, in the table and chains that Debian's own file uses."""
    lines = ["add table inet filter", "delete table inet filter"]
    if not rules:
        return _batch(lines)
    lines.append("table inet filter {")
    for chain, direction in (("input", "in"), ("output", "out")):
        mine = [rule for rule in rules if rule.direction == direction]
        lines += [
            f"  chain {chain} {{",
            f"    type filter hook {chain} priority 0; policy accept;",
            *(f"    {_rule(rule, addresses)}" for rule in mine if rule.abrupt),
            "    ct state established,related accept",
            f"    {'iif' if direction == 'in' else 'oif'} lo accept",
            *(f"    {_rule(rule, addresses)}" for rule in mine if not rule.abrupt),
            "  }",
        ]
    return _batch([*lines, "}"])


def _rule(rule: FirewallRule, addresses: Mapping[str, Sequence[str]]) -> str:
    words: list[str] = []
    if rule.peer:
        words.append(f"ip {'saddr' if rule.direction == 'in' else 'daddr'} {{ {', '.join(addresses[rule.peer])} }}")
    if rule.ports:
        words.append(f"{rule.protocol} dport {rule.ports}")
    elif rule.protocol:
        words.append(f"meta l4proto {rule.protocol}")
    return " ".join([*words, rule.action])


def _batch(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
