"""The network of a cluster as commands for ip, tc and nft: pure functions, nothing is run here."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lab.cluster import MAIN_INTERFACE, MAIN_NETWORK, Cluster, FirewallRule, Link, MachineSpec, Uplink

# All labs can have these addresses: no interface of a lab is in the computer's own network namespace.
LAB_ADDRESSES = ipaddress.IPv4Network("10.77.0.0/16")
QUEUE_MS = 50  # how long packets may wait at a link with a rate before they are dropped
BURST_MS = 1  # a link may catch up this much after being idle
# With a bucket smaller than two full frames nothing would ever pass.
MIN_BURST_FRAMES = 2
# The addresses of a container bridge; several machines may have the same.
BRIDGE_ADDRESSES = ipaddress.IPv4Network("172.17.0.0/16")
BRIDGE = "docker0"
ROUTER_NUMBER = 254  # of a router in its own network; in the main network, routers count down from it


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port of the switch, with the cable to one interface of one machine."""

    name: str
    machine: str
    link: Link
    address: str  # of the machine's end, with its prefix


def plan_ports(cluster: Cluster) -> tuple[Port, ...]:
    """Number the switch's ports, and give each machine an address in each of its networks."""
    machines = [(machine, wired_links(machine, cluster)) for machine in cluster.machines]
    subnets = _subnets(cluster, [link.network for _, links in machines for link in links])
    ports: list[Port] = []
    for number, (machine, links) in enumerate(machines, start=1):
        for link in links:
            subnet = subnets[link.network]
            # A machine with others on its bridge has the first address there.
            address = subnet[1] if link.interface == BRIDGE else subnet[number + 1 if subnet.prefixlen < 24 else number]
            prefix = f"{address}/{subnet.prefixlen}"
            ports.append(Port(name=f"port{len(ports) + 1}", machine=machine.name, link=link, address=prefix))
    return tuple(ports)


def wired_links(machine: MachineSpec, cluster: Cluster) -> tuple[Link, ...]:
    """A machine's links: the main one leads to its gateway, if it has one; a machine that is a gateway has a bridge."""
    main, *others = machine.links
    if machine.behind:
        main = replace(main, network=inner_network(machine.behind))
    if machine.name in cluster.gateways:
        bridge = Link(interface=BRIDGE, network=inner_network(machine.name), rate_bits_per_s=None, mtu=main.mtu)
        others = [*others, bridge]
    return (main, *others)


def inner_network(gateway: str) -> str:
    """The name of the network behind a gateway, cut to the length of an interface name."""
    return f"in-{gateway}"[:15]


def _subnets(cluster: Cluster, networks: Sequence[str]) -> dict[str, ipaddress.IPv4Network]:
    bridges = {inner_network(name) for name in cluster.gateways if cluster.is_machine(name)}
    joined = {network for uplink in cluster.uplinks for network in uplink.networks} - {MAIN_NETWORK}
    rest = [one for one in dict.fromkeys([MAIN_NETWORK, *networks]) if one not in bridges | joined]
    return {
        **dict.fromkeys(joined, next(LAB_ADDRESSES.subnets(new_prefix=24))),
        **dict.fromkeys(bridges, BRIDGE_ADDRESSES),
        **dict(zip(rest, LAB_ADDRESSES.subnets(new_prefix=24), strict=False)),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A router or machine that does NAT between a network behind it and the main network."""

    name: str
    network: str
    inside: str  # its address in the network behind it, with the prefix
    outside: str  # its address in the main network, with the prefix; empty for a machine, which has one anyway
    interface: str  # the interface that leads to the main network


def plan_gateways(cluster: Cluster) -> tuple[Gateway, ...]:
    """All gateways of a cluster: routers in the switch's namespace, and machines with a bridge."""
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
    """For `nft -f` in the gateway's namespace: NAT for connections from inside, and no new connections from outside."""
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
    """For `ip -batch` on a machine behind the gateway: its default route."""
    return _batch([f"route add default via {bare(gateway.inside)}"])


def bare(address: str) -> str:
    """An address without its prefix."""
    return address.partition("/")[0]


def addresses_of(ports: Sequence[Port]) -> dict[str, tuple[str, ...]]:
    """Each machine's addresses, that of its main link first."""
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


def uplink_ends(index: int) -> tuple[str, str]:
    """The names of the two ports of a cluster's uplink, on the switches of its first and its second network."""
    return f"uplink{index + 1}a", f"uplink{index + 1}b"


def uplink_batch(index: int, uplink: Uplink) -> str:
    """For `ip -batch` in the switch's namespace: a cable between the switches of two networks."""
    near, far = uplink_ends(index)
    return _batch(
        [
            f"link add {near} type veth peer name {far}",
            *(f"link set {end} master {network} up" for end, network in zip((near, far), uplink.networks, strict=True)),
        ]
    )


def machine_batch(machine: MachineSpec, ports: Sequence[Port]) -> str:
    """For `ip -batch` in a machine's namespace: its addresses, and interfaces that lead nowhere."""
    lines = ["link set lo up"]
    for end in machine.dead_ends:
        # A bridge that lost its last port has no carrier, like an empty docker0; its MAC address is made as Docker's.
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

    The bucket holds a millisecond of traffic. At 1 Gbit/s the 64 kB packets that the kernel builds to save work fit;
    on a slower link the kernel splits them. A larger bucket would let short messages pass faster than the rate.
    """
    if rate_bits_per_s is None:
        return _batch([f"qdisc replace dev {interface} root pfifo"])
    burst_bytes = max(rate_bits_per_s * BURST_MS // 8000, MIN_BURST_FRAMES * (mtu + 14))
    return _batch(
        [f"qdisc replace dev {interface} root tbf rate {rate_bits_per_s}bit burst {burst_bytes} latency {QUEUE_MS}ms"]
    )


def hosts_file(machine: MachineSpec, cluster: Cluster, addresses: Mapping[str, Sequence[str]]) -> str:
    """The machine's /etc/hosts: its own name as `own_name` says, then the machines that it resolves."""
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
