"""Cluster files: YAML in, a Cluster out, or an error that names the key and the file."""

import ipaddress
from collections.abc import Hashable
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from lab import quantities
from lab.cluster import MAIN_INTERFACE, MAIN_NETWORK, Cluster, DeadEnd, Disk, FirewallRule, Link, MachineSpec, Uplink
from lab.errors import ClusterFileError, did_you_mean

SHIPPED_DIR = Path(__file__).parent / "clusters"


def _port_range(text: str) -> str:
    first, _, last = text.partition("-")
    if not all(part.strip().isdigit() and 0 < int(part) < 65536 for part in (first, last or first)):
        raise ValueError(f"{text!r} is not a port or a range: write it as 29500 or 1024-65535")
    return text.replace(" ", "")


def _address_with_prefix(text: str) -> str:
    if "/" not in text:
        raise ValueError(f"{text!r} lacks its prefix: write it as 172.17.0.1/16")
    return str(ipaddress.IPv4Interface(text))


Rate = Annotated[int, BeforeValidator(lambda value: quantities.rate_bits_per_s(str(value)))]
Size = Annotated[int, BeforeValidator(lambda value: quantities.size_bytes(str(value)))]
MachineName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")]
InterfaceName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9.-]{0,14}$")]
Ports = Annotated[str, BeforeValidator(str), AfterValidator(_port_range)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class InterfaceEntry(_Part):
    """An interface in addition to eth0: a second link, or a bridge like docker0."""

    name: InterfaceName
    kind: Literal["link", "bridge"]
    network: InterfaceName | None = None
    link: Rate | None = None
    mtu: Annotated[int, Field(ge=576, le=65535)] = 1500
    address: Annotated[str, AfterValidator(_address_with_prefix)] | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> "InterfaceEntry":
        if self.kind == "bridge" and (not self.address or self.network or self.link):
            raise ValueError("a bridge takes an address, such as 172.17.0.1/16, and no network or link")
        if self.kind == "link" and (not self.network or self.address):
            raise ValueError("a link takes a network, such as wifi, and gets its address from the lab")
        if self.name in (MAIN_INTERFACE, "lo"):
            raise ValueError(f"every machine has {self.name} already; choose another name")
        return self


class DiskEntry(_Part):
    """A small file system over a directory that exists."""

    path: Annotated[str, Field(pattern=r"^/")]
    size: Size


class FirewallEntry(_Part):
    """One firewall rule."""

    action: Literal["drop", "reject", "accept"]
    direction: Literal["in", "out"] = "in"
    protocol: Literal["tcp", "udp", "icmp"] | None = None
    ports: Ports | None = None
    peer: str | None = None
    abrupt: bool = False

    @model_validator(mode="after")
    def _ports_have_a_protocol(self) -> "FirewallEntry":
        if self.ports and self.protocol not in ("tcp", "udp"):
            raise ValueError("ports need protocol: tcp or protocol: udp")
        return self


class MachineEntry(_Part):
    """One machine of the file."""

    name: MachineName
    cores: Annotated[float, Field(ge=0.001, le=1024)]
    memory: Size | None = None
    link: Rate | None = None
    network: InterfaceName = MAIN_NETWORK
    mtu: Annotated[int, Field(ge=576, le=65535)] = 1500
    hostname: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]{0,62}$")] | None = None
    resolves: bool | tuple[str, ...] = True
    own_name: Literal["loopback", "address", "missing"] = "loopback"
    shm: Size | None = None
    disks: tuple[DiskEntry, ...] = ()
    interfaces: tuple[InterfaceEntry, ...] = ()
    firewall: tuple[FirewallEntry, ...] = ()
    behind: MachineName | None = None


class UplinkEntry(_Part):
    """The link between the switches of two networks."""

    networks: tuple[InterfaceName, InterfaceName]
    link: Rate | None = None


class ClusterEntry(_Part):
    """The whole file."""

    machines: Annotated[tuple[MachineEntry, ...], Field(min_length=1, max_length=250)]
    uplinks: tuple[UplinkEntry, ...] = ()


def shipped_clusters() -> list[str]:
    """Names of the clusters that come with the lab."""
    return sorted(path.stem for path in SHIPPED_DIR.glob("*.yaml"))


def load_cluster(name_or_path: str | Path) -> Cluster:
    """Read a cluster file, or a shipped cluster by its name."""
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml") and path.name == str(name_or_path):
        if path.name not in shipped_clusters():
            raise ClusterFileError(
                f"no cluster is called {path.name!r}",
                fix=f"{did_you_mean(path.name, shipped_clusters())}; or give the path of a .yaml file",
            )
        path = SHIPPED_DIR / f"{path.name}.yaml"
    try:
        text = path.read_text()
    except OSError as error:
        raise ClusterFileError(
            f"{path}: {error.strerror}",
            fix=f"give the path of a cluster file, or one of: {', '.join(shipped_clusters())}",
        ) from None
    return parse_cluster(text, source=str(path), name=path.stem)


def parse_cluster(text: str, *, source: str, name: str) -> Cluster:
    """Turn the text of a cluster file into a Cluster; errors name it by `source`."""
    try:
        data = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (a SafeLoader that also refuses double keys)
    except yaml.YAMLError as error:
        raise ClusterFileError(f"{source} is not YAML: {' '.join(str(error).split())}", fix="mend that line") from None
    try:
        entry = ClusterEntry.model_validate(data)
    except ValidationError as error:
        raise _explain(error, source, data) from None
    return _cluster_from(entry, source, name)


def _cluster_from(entry: ClusterEntry, source: str, name: str) -> Cluster:
    names = [machine.name for machine in entry.machines]
    for index, machine in enumerate(entry.machines):
        where = f"machines[{index}]"
        if names.index(machine.name) != index:
            raise ClusterFileError(f"{source}: {where}.name: {machine.name!r} is there twice", fix="rename one of them")
        interfaces = [MAIN_INTERFACE, *(interface.name for interface in machine.interfaces)]
        if len(set(interfaces)) != len(interfaces):
            raise ClusterFileError(f"{source}: {where}.interfaces: a name is there twice", fix="rename one of them")
        mentioned = [*(machine.resolves if isinstance(machine.resolves, tuple) else ())]
        mentioned += [rule.peer for rule in machine.firewall if rule.peer]
        for other in mentioned:
            if other not in names:
                raise ClusterFileError(
                    f"{source}: {where} ({machine.name}) speaks of {other!r}, which is no machine of this file",
                    fix=did_you_mean(other, names),
                )
        _check_behind(entry, machine, f"{source}: {where}.behind")
    _check_uplinks(entry, source)
    return Cluster(
        name=name,
        machines=tuple(_machine_from(machine, names) for machine in entry.machines),
        uplinks=tuple(Uplink(networks=one.networks, rate_bits_per_s=one.link) for one in entry.uplinks),
    )


def _check_uplinks(entry: ClusterEntry, source: str) -> None:
    """Refuse uplinks to nowhere, a second way between two networks, and a network that no uplink joins to the rest.

    Two ways between two switches are a loop, in which every broadcast would go round for ever.
    """
    networks = dict.fromkeys([MAIN_NETWORK, *(machine.network for machine in entry.machines if not machine.behind)])
    group = {network: network for network in networks}  # networks with the same value are joined
    for index, uplink in enumerate(entry.uplinks):
        where = f"{source}: uplinks[{index}].networks"
        for network in uplink.networks:
            if network not in networks:
                raise ClusterFileError(
                    f"{where}: no machine's eth0 is on {network!r}", fix=did_you_mean(network, networks)
                )
        one, other = (group[network] for network in uplink.networks)
        if one == other:
            raise ClusterFileError(
                f"{where}: {' and '.join(uplink.networks)} are joined already", fix="remove this uplink"
            )
        group = {network: one if joined == other else joined for network, joined in group.items()}
    for network, joined in group.items():
        if joined != group[MAIN_NETWORK]:
            raise ClusterFileError(
                f"{source}: no uplink joins {network!r} to {MAIN_NETWORK!r}",
                fix=f"add uplinks: [{{networks: [{MAIN_NETWORK}, {network}], link: 20mbit}}]",
            )


def _check_behind(entry: ClusterEntry, machine: MachineEntry, where: str) -> None:
    """Refuse a machine that is behind itself, or behind a machine that is behind a gateway, too."""
    if machine.behind and machine.network != MAIN_NETWORK:
        raise ClusterFileError(
            f"{where}: {machine.name} is on the network behind {machine.behind}, not on {machine.network!r}",
            fix="remove network: or behind: there",
        )
    outer = next((other for other in entry.machines if other.name == machine.behind), None)
    if outer is machine:
        raise ClusterFileError(f"{where}: {machine.name} is behind itself", fix="name a router or another machine")
    if outer is not None and outer.behind:
        raise ClusterFileError(
            f"{where}: {outer.name} is behind {outer.behind} itself", fix="name a machine of the main network"
        )


def _machine_from(entry: MachineEntry, names: list[str]) -> MachineSpec:
    resolves = tuple(names) if entry.resolves is True else entry.resolves or ()
    main = Link(interface=MAIN_INTERFACE, network=entry.network, rate_bits_per_s=entry.link, mtu=entry.mtu)
    extra = [
        Link(interface=one.name, network=one.network, rate_bits_per_s=one.link, mtu=one.mtu)
        for one in entry.interfaces
        if one.network
    ]
    return MachineSpec(
        name=entry.name,
        cores=entry.cores,
        hostname=entry.hostname or entry.name,
        memory_bytes=entry.memory,
        shm_bytes=entry.shm,
        links=(main, *extra),
        dead_ends=tuple(DeadEnd(interface=one.name, address=one.address) for one in entry.interfaces if one.address),
        disks=tuple(Disk(path=disk.path, size_bytes=disk.size) for disk in entry.disks),
        resolves=tuple(name for name in resolves if name != entry.name),
        own_name=entry.own_name,
        firewall=tuple(FirewallRule(**rule.model_dump()) for rule in entry.firewall),
        behind=entry.behind or "",
    )


def _explain(error: ValidationError, source: str, data: Any) -> ClusterFileError:
    """Turn one of pydantic's errors into an error that names the key, the file and the fix."""
    # A mistyped key gives two errors, an unknown key and a missing one; the unknown key says more.
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    if first["type"] == "extra_forbidden":
        key = str(first["loc"][-1])
        return ClusterFileError(f"{source}: {where} is not a key", fix=did_you_mean(key, _known_keys(first["loc"])))
    if first["type"] == "missing":
        return ClusterFileError(f"{source}: {where} is missing", fix=f"add {first['loc'][-1]}: ... there")
    if not isinstance(data, dict):
        return ClusterFileError(f"{source} holds no machines", fix="begin the file with machines: and a list under it")
    message = first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    fix = "see docs/lab.md for every key and an example"
    if first["type"] == "string_pattern_mismatch":
        message = f"{first['input']!r} does not fit here"
        fix = "names are small letters, digits and dashes, beginning with a letter; paths begin with /"
    return ClusterFileError(f"{source}: {where}: {message}", fix=fix)


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    nested: dict[str, type[BaseModel]] = {
        "machines": MachineEntry,
        "uplinks": UplinkEntry,
        "disks": DiskEntry,
        "interfaces": InterfaceEntry,
        "firewall": FirewallEntry,
    }
    inside = [part for part in location[:-1] if isinstance(part, str)]
    return sorted(nested[inside[-1]].model_fields if inside else ClusterEntry.model_fields)


class _StrictLoader(yaml.SafeLoader):
    """A YAML loader that refuses two equal keys, of which SafeLoader silently drops the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} is there twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep=deep)
