"""What is known about one machine: a snapshot that can be printed, sent, recorded and read back.

None means that a fact does not apply or could not be read; `Facts.gaps` lists what could not be read, and why.
"""

import msgspec

from potluck.machine.container import IMAGE_MANAGERS

LOOPBACK, WIRED, WIRELESS, BRIDGE, TUNNEL, VIRTUAL = "loopback", "wired", "wireless", "bridge", "tunnel", "virtual"


class Struct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The base class of all facts."""


class System(Struct, frozen=True, kw_only=True):
    """The operating system, and the container around it, if there is one."""

    family: str  # linux, windows, darwin
    release: str = ""
    distribution: str = ""
    container: str | None = None  # docker, podman, lxc, ...
    is_administrator: bool = False

    @property
    def is_image_container(self) -> bool:
        """Whether Docker or Podman runs this: its firewall and its clock are those of the computer around it."""
        return self.container in IMAGE_MANAGERS


class Processor(Struct, frozen=True, kw_only=True):
    """The processor, and the cores that this process may use; a container's CPU quota counts."""

    name: str = ""
    num_cores: int = 1
    usable_cores: float = 1.0
    throttled_events: int | None = None


class CardProgram(Struct, frozen=True, kw_only=True):
    """A program outside Potluck that uses a card."""

    pid: int
    name: str
    memory_bytes: int = 0  # 0: the driver does not tell


class Gpu(Struct, frozen=True, kw_only=True):
    """One NVIDIA device as the driver reports it."""

    name: str
    memory_bytes: int = 0
    capability: str = ""  # 8.6
    driver: str = ""
    throttle: tuple[str, ...] = ()  # heat, power
    used_bytes: int | None = None  # memory in use by all programs
    busy: float | None = None  # fraction of the last second, 0 to 1
    programs: tuple[CardProgram, ...] | None = None  # outside Potluck; None: the driver does not list them
    is_training: bool = False  # a process of Potluck uses the card


class Interface(Struct, frozen=True, kw_only=True):
    """One network interface."""

    name: str
    kind: str = WIRED
    is_up: bool = True
    has_carrier: bool | None = None
    speed_mbit: int | None = None
    is_half_duplex: bool = False
    mtu: int = 1500
    addresses: tuple[str, ...] = ()  # IPv4 with prefix: 192.168.1.5/24
    adapter: str = ""  # inside WSL: the adapter of Windows whose kind and speed this interface has

    @property
    def title(self) -> str:
        """The name to print: inside WSL that of the Windows adapter, which the user sees in Windows' settings."""
        return f"{self.adapter} of Windows" if self.adapter else self.name


class Route(Struct, frozen=True, kw_only=True):
    """Where packets for a network leave this machine; 0.0.0.0/0 is the default route."""

    network: str
    interface: str
    gateway: str = ""
    metric: int = 0


class Resolved(Struct, frozen=True, kw_only=True):
    """The addresses that a name resolves to on this machine, or the error."""

    name: str
    addresses: tuple[str, ...] = ()
    error: str = ""


class Chain(Struct, frozen=True, kw_only=True):
    """A chain of nftables that filters incoming or outgoing packets, and whether the chain may block any."""

    family: str
    table: str
    name: str
    may_block: bool
    hook: str = "input"


class Firewall(Struct, frozen=True, kw_only=True):
    """The active firewalls, and the chains of nftables that filter packets."""

    tools: tuple[str, ...] = ()  # active ones: ufw, firewalld, nftables, iptables
    chains: tuple[Chain, ...] = ()
    is_readable: bool = True


class Adapter(Struct, frozen=True, kw_only=True):
    """A network adapter of Windows."""

    alias: str
    is_up: bool = True
    is_wireless: bool = False
    speed_mbit: int | None = None
    metric: int | None = None
    profile: str = ""  # Private, Public, DomainAuthenticated
    addresses: tuple[str, ...] = ()
    may_sleep: bool | None = None  # whether Windows may switch the adapter off to save power; None if not known


class ForwardedPort(Struct, frozen=True, kw_only=True):
    """A rule of `netsh interface portproxy`: Windows listens at one address and connects to another."""

    listen_address: str
    listen_port: int
    connect_address: str
    connect_port: int


class Windows(Struct, frozen=True, kw_only=True):
    """Windows itself, or the Windows around a WSL guest."""

    build: int | None = None
    adapters: tuple[Adapter, ...] = ()
    displays: tuple[str, ...] = ()  # vendors of graphics cards, with or without a driver: nvidia, amd, intel
    guards: tuple[str, ...] = ()  # active firewalls and antivirus programs of other makers: Norton 360
    forwarded_ports: tuple[ForwardedPort, ...] = ()


class Wsl(Struct, frozen=True, kw_only=True):
    """The Windows Subsystem for Linux around this machine."""

    version: int = 2
    distribution: str = ""  # as `wsl --list` names it: Ubuntu-24.04
    has_gpu_device: bool | None = None  # /dev/dxg, through which WSL2 reaches the cards of Windows
    has_cuda_library: bool | None = None  # libcuda.so, which NVIDIA's driver for Windows puts into WSL2
    mode: str | None = None  # in effect: nat, mirrored, none, virtioproxy, bridged
    config_mode: str | None = None  # what .wslconfig asks for
    config_encoding: str | None = None  # ascii, utf-8-bom, utf-16, damaged; None without a file
    idle_timeout_ms: int | None = None
    has_interop: bool = False


class Space(Struct, frozen=True, kw_only=True):
    """Free and total space of the file system that holds a folder."""

    folder: str
    free_bytes: int
    total_bytes: int
    is_writable: bool = True


class Power(Struct, frozen=True, kw_only=True):
    """The state of the battery, on a machine that has one."""

    on_battery: bool = False
    percent: int | None = None


class Torch(Struct, frozen=True, kw_only=True):
    """PyTorch, as described by a process that imported it."""

    version: str = ""
    error: str = ""
    cuda: str = ""  # the version that torch was built for; empty in a CPU build
    hip: str = ""
    nccl: str = ""
    num_devices: int = 0
    devices: tuple[str, ...] = ()  # cuda:0, xpu:0, ...
    cards: dict[str, str] = {}  # by device: the name that torch gives to its card
    capabilities: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()  # sm_80, compute_90, ...


class Software(Struct, frozen=True, kw_only=True):
    """Software versions; those of packages come from their metadata, so they are known even if an import fails."""

    python: str
    potluck: str
    torch: Torch | None = None  # None: not installed
    torchft: str = ""


class Listener(Struct, frozen=True, kw_only=True):
    """A program that listens on a port."""

    port: int
    address: str = ""
    process: str = ""
    pid: int | None = None


class Facts(Struct, frozen=True, kw_only=True):
    """All facts about one machine."""

    machine: str
    system: System
    processor: Processor = Processor()
    memory_bytes: int = 0
    gpus: tuple[Gpu, ...] = ()
    pci_displays: tuple[str, ...] = ()  # vendors of graphics cards on the bus: nvidia, amd, intel, microsoft
    interfaces: tuple[Interface, ...] = ()
    routes: tuple[Route, ...] = ()
    hostname: str = ""
    names: tuple[Resolved, ...] = ()
    docker_names: tuple[Resolved, ...] = ()  # what Docker Desktop wrote into the hosts file
    firewall: Firewall = Firewall()
    wsl: Wsl | None = None
    windows: Windows | None = None
    shm: Space | None = None
    disks: tuple[Space, ...] = ()  # the runs folder first
    power: Power | None = None
    software: Software = Software(python="", potluck="")
    variables: dict[str, str] = {}
    infiniband: tuple[str, ...] = ()  # devices of InfiniBand and RoCE: mlx5_0
    nccl_files: dict[str, str] = {}  # variables that /etc/nccl.conf and the user's own file set for NCCL
    listeners: tuple[Listener, ...] = ()
    has_ipv6: bool = True
    loopback: str | None = None  # why lo does not take a cluster's addresses; empty if it does, None if not tried
    gaps: tuple[str, ...] = ()

    def interface(self, name: str) -> Interface | None:
        """The interface with exactly that name."""
        return next((one for one in self.interfaces if one.name == name), None)

    def resolved(self, name: str) -> Resolved | None:
        """The result of looking up a name, if the name was looked up."""
        return next((one for one in self.names if one.name == name), None)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every IPv4 address of an interface that is up, without prefixes."""
        return tuple(a.partition("/")[0] for one in self.interfaces if one.is_up for a in one.addresses)
