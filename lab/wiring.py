"""The network of a cluster as commands for ip, tc and nft: pure functions, nothing is run here."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lab.cluster import MAIN_INTERFACE, MAIN_NETWORK, Cluster, FirewallRule, Link, MachineSpec

# Every lab has these addresses to itself: no interface of a lab is in the computer's own network namespace.
LAB_ADDRESSES = ipaddress.IPv4Network("10.77.0.0/16")
QUEUE_MS = 50  # what a sender may have waiting before packets are dropped
BURST_MS = 1  # a link may catch up this much after being idle
# Below two full frames nothing would ever pass.
MIN_BURST_FRAMES = 2
# What a container's bridge has; more than one machine may have it.
BRIDGE_ADDRESSES = ipaddress.IPv4Network("172.17.0.0/16")
BRIDGE = "docker0"
ROUTER_NUMBER = 254  # of a router, in both of its networks


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A place in a switch, with the cable to one interface of one machine."""

    name: str
    machine: str
    link: Link
    address: str  # of the machine's end, with its prefix


def plan_ports(cluster: Cluster) -> tuple[Port, ...]:
    """Number the switch's ports and give each machine one address in each network that it is in."""
    machines = [(machine, wired_links(machine, cluster)) for machine in cluster.machines]
    subnets = _subnets(cluster, [link.network for _, links in machines for link in links])
    ports: list[Port] = []
    for number, (machine, links) in enumerate(machines, start=1):
        for link in links:
            subnet = subnets[link.network]
            # A machine with others on its bridge is the first there.
            address = subnet[1] if link.interface == BRIDGE else subnet[number + 1 if subnet.prefixlen < 24 else number]
            prefix = f"{address}/{subnet.prefixlen}"
            ports.append(Port(name=f"port{len(ports) + 1}", machine=machine.name, link=link, address=prefix))
    return tuple(ports)


def wired_links(machine: MachineSpec, cluster: Cluster) -> tuple[Link, ...]:
    """Its main link leads to what it is behind; a machine with others behind it has a bridge for them."""
    main, *others = machine.links
    if machine.behind:
        main = replace(main, network=inner_network(machine.behind))
    if machine.name in cluster.gateways:
        bridge = Link(interface=BRIDGE, network=inner_network(machine.name), rate_bits_per_s=None, mtu=main.mtu)
        others = [*others, bridge]
    return (main, *others)


def inner_network(gateway: str) -> str:
    """The network behind a router or a machine."""
    return f"in-{gateway}"[:15]


def _subnets(cluster: Cluster, networks: Sequence[str]) -> dict[str, ipaddress.IPv4Network]:
    bridges = {inner_network(name) for name in cluster.gateways if cluster.is_machine(name)}
    rest = [one for one in dict.fromkeys([MAIN_NETWORK, *networks]) if one not in bridges]
    return {
        **dict.fromkeys(bridges, BRIDGE_ADDRESSES),
        **dict(zip(rest, LAB_ADDRESSES.subnets(new_prefix=24), strict=False)),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """What stands between a network and the main one: it sends on what comes from inside under its own address."""

    name: str
    network: str
    inside: str  # its address there, with the prefix
    outside: str  # its address in the main network, with the prefix; empty if it is a machine's, which has it anyway
    interface: str  # that leads to the main network


def plan_gateways(cluster: Cluster) -> tuple[Gateway, ...]:
    """All of them, routers in the switch's own namespace and machines with a bridge."""
    networks = [link.network for machine in cluster.machines for link in wired_links(machine, cluster)]
    subnets = _subnets(cluster, networks)
    found = []
    for index, name in enumerate(cluster.gateways):
        network = inner_network(name)
        is_machine = cluster.is_machine(name)
        number = 1 if is_machine else ROUTER_NUMBER
        main = subnets[MAIN_NETWORK]
        found.append(
            Gateway(
                name=name,
                network=network,
                inside=f"{subnets[network][number]}/{subnets[network].prefixlen}",
                outside="" if is_machine else f"{main[ROUTER_NUMBER - index]}/{main.prefixlen}",
                interface=MAIN_INTERFACE if is_machine else MAIN_NETWORK,
            )
        )
    return tuple(found)


def router_batch(gateway: Gateway) -> str:
    """For `ip -batch` in the switch's namespace: a router has an address in both networks."""
    return _batch(
        [f"addr add {gateway.inside} dev {gateway.network}", f"addr add {gateway.outside} dev {gateway.interface}"]
    )


def translation_script(gateway: Gateway) -> str:
    """For `nft -f` where the gateway is: what comes from inside goes out under its address, nothing new comes in."""
    inside = ipaddress.ip_interface(gateway.inside).network
    table = gateway.network.replace("-", "_")
    return _batch(
        [
            f"table ip {table} {{",
            "  chain out {",
            "    type nat hook postrouting priority 100;",
            f'    ip saddr {inside} oifname "{gateway.interface}" masquerade',
            "  }",
            "  chain in {",
            "    type filter hook forward priority 0; policy accept;",
            f"    ip daddr {inside} ct state new drop",
            "  }",
            "}",
        ]
    )


def default_route(gateway: Gateway) -> str:
    """For `ip -batch` on a machine behind it."""
    return _batch([f"route add default via {bare(gateway.inside)}"])


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
