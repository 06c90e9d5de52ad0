"""Error texts of torch, Gloo, NCCL, torchrun, CUDA and Windows that we know the cause of.

`{machine}` stands for the machine whose address the text names.
"""

from potluck.doctor.known_error import known
from potluck.doctor.known_in_potluck import KNOWN_IN_POTLUCK
from potluck.doctor.known_in_scripts import KNOWN_IN_SCRIPTS

_ADDRESS = r"\[?(?:\d{1,3}(?:\.\d{1,3}){3})\]?"
# For texts of launches without a host, where every worker dials high ports of every other worker.
_JOIN = "start with potluck host and potluck join, which need one open port"

# The first pattern that matches a line wins, so the more exact of two patterns stands first.
_KNOWN_BETWEEN_MACHINES = (
    known(
        "hostname-loopback",
        r"(connect|remote=)\s*\[?127\.\d+\.\d+\.\d+\]?.*(refused|failed)|connectFullMesh failed.*127\.\d+\.\d+\.\d+",
        "a worker was told to dial 127.x, which is the dialler itself: a machine's own name means a loopback address",
        "start with Potluck, which gives Gloo an address; else on every machine: "
        "export GLOO_SOCKET_IFNAME=INTERFACE (potluck doctor names it)",
    ),
    known(
        "name-unresolvable",
        r"Temporary failure in name resolution|Name or service not known|gai error: -\d|"
        r"IPv6 network addresses of \([^)]*\) cannot be retrieved",
        "a machine's name is not known where it was looked up",
        "use addresses (on that machine: hostname -I), or add the name to /etc/hosts: potluck doctor prints the line",
    ),
    known(
        "ifname-invalid",
        r"Unable to find address for: \S+",
        "GLOO_SOCKET_IFNAME names no interface; Gloo wants one exact name, no ^ and no prefix",
        "unset GLOO_SOCKET_IFNAME, or set it to the name that potluck doctor prints",
    ),
    known(
        "family-mixed",
        r"ss1\.ss_family == ss2\.ss_family",
        "one machine is met over IPv4 and another over IPv6",
        "use IPv4 addresses everywhere; on each machine: hostname -I",
    ),
    known(
        "nccl-ifname",
        r"Bootstrap\s*:\s*no socket interface found",
        "NCCL_SOCKET_IFNAME matches no interface of this machine; the value is each machine's own",
        "unset NCCL_SOCKET_IFNAME, or set it to '=NAME' as potluck doctor prints it",
    ),
    known(
        "container-bridge",
        r"Connect to (?:172\.(?:1[789]|2\d|3[01])\.\d+\.\d+)\S* failed",
        "{machine} is an address on a container's bridge, which other computers cannot reach",
        f"{_JOIN} and work on a bridge too; else start the container with --network=host --ipc=host",
    ),
    known(
        "virtual-interface",
        r"(?:using|via|bootstrap\s*:\s*using|NET/Socket\s*:\s*Using)\b[^\n]*\b(docker0|br-[0-9a-f]{6,}|veth\w+|virbr\d)\b"
        r"|(?:connect|using)[^\n]*\b169\.254\.\d+\.\d+",
        "an interface that leads to no other machine is in use",
        "export GLOO_SOCKET_IFNAME=NAME and NCCL_SOCKET_IFNAME='=NAME' with the name that potluck doctor prints",
    ),
    known(
        "no-route",
        r"errno:? ?113|No route to host",
        "packets to {machine} are refused on the way: a firewall that rejects, or Wi-Fi that keeps its guests apart",
        f"{_JOIN}; if no firewall runs there, use a cable or switch off client isolation in the router",
    ),
    known(
        "wsl-mirrored-unsupported",
        r"Mirrored networking mode is not supported",
        "this Windows has no mirrored networking for WSL",
        f"{_JOIN}: a WSL behind NAT joins and trains as it is; mirrored networking needs Windows 11 22H2",
    ),
    known(
        "wsl-mirrored-port",
        r"WinError 10013|forbidden by its access permissions",
        "Windows keeps this port for itself",
        "choose another: potluck host --port 30500, potluck join --port 30500, or export MASTER_PORT=30500 everywhere",
    ),
    known(
        "wsl-nat",
        r"RendezvousConnectionError",
        "the meeting point was reached, then the workers could not reach each other: typical of WSL2 behind NAT, "
        "where a forwarded port is not enough",
        f"{_JOIN}: a WSL behind NAT joins and trains as it is",
    ),
    known(
        "nobody-hosts",
        r"client socket has timed out after \d+s|client socket has timed out after \d+ms(?!.*connect to)|"
        r"client socket has timed out after \d+ms.*\b29500\b|"
        r"TCP client failed to connect/validate to host|connection to the C10d store has failed",
        "nobody answers at the address that every worker dials: MASTER_ADDR names another machine, the worker with "
        "RANK=0 is not started, or a firewall on its machine drops the packets",
        "set MASTER_ADDR to an address of the machine with RANK=0 (there: hostname -I) and start that one first; "
        "if it runs, type there: potluck doctor --listen",
    ),
    known(
        "ipv6-noise",
        r"errno:? ?97|Address family not supported by protocol",
        "IPv6 is off on this machine; torch tries it first and goes on with IPv4",
        "nothing: it is harmless",
    ),
    known(
        "windows-native",
        r"use_libuv was requested but PyTorch was buil[dt] without libuv|"
        r"makeDeviceForHostname\(\): unsupported gloo device",
        "this is Python on Windows itself, whose Gloo cannot talk to Linux machines",
        "install Potluck inside WSL2: wsl --install, then see docs/windows.md",
    ),
    known(
        "docker-desktop-hosts",
        r"\b10049\b.*not valid in its context|kubernetes\.docker\.internal",
        "a name means an address that Docker Desktop wrote into the hosts file and no interface has",
        "use the machine's address on the LAN instead of its name",
    ),
    known(
        "no-nccl",
        r"Distributed package doesn'?t have NCCL built in|NCCL (?:backend )?is not (?:available|built)|"
        r"\bNCCL(?: available)?: False\b",
        "this build of torch has no NCCL",
        "leave --backend out: Gloo is used; for NCCL install a CUDA build of torch",
    ),
    known(
        "nccl-aborted",
        r"(?:socketStartConnect|NCCL WARN).*failed ?: ?Software caused connection abort",
        "a connection of NCCL was cut off while it was made: the other worker has ended, a program on the way "
        "(antivirus, VPN, WSL2's NAT) closes it, or the network went down for a moment",
        "look for the first error of the other worker: potluck logs; if there is none, start with potluck host and "
        "potluck join, and try the way between the machines: potluck doctor --cluster",
    ),
    known(
        "cuda-missing",
        r"\bCUDA(?: available)?: False\b|Torch not compiled with CUDA enabled|Found no NVIDIA driver",
        "torch sees no GPU here",
        "install a CUDA build of torch; on WSL2 the driver belongs on Windows: potluck doctor says which is missing",
    ),
    known(
        "nvidia-smi-missing",
        r"nvidia-smi[^\n]*(?:command )?not found|NVIDIA-SMI has failed",
        "this machine has no NVIDIA driver, or the driver does not run: torch will see no NVIDIA GPU here",
        "without an NVIDIA GPU nothing is to be done: Potluck trains on the CPU; with one, install the driver (on "
        "WSL2: on Windows, not inside WSL), restart, then: potluck doctor",
    ),
    known(
        "port-in-use",
        r"EADDRINUSE|Address already in use",
        "another program has the port",
        "potluck doctor --check port-in-use names it; or choose another on every machine: export MASTER_PORT=29501",
    ),
    known(
        "missing-machines",
        r"(?P<came>\d+)/(?P<wanted>\d+) clients joined|"
        r"store_based_barrier_key:\d+ \(world_size=(?P<wanted2>\d+), worker_count=(?P<came2>\d+)",
        "{came} of {wanted} workers came; the others never arrived",
        "start the missing ones, or a smaller run; potluck doctor --reach on each names who cannot come",
    ),
    known(
        "nccl-mismatch",
        r"message truncated\s*: receiving \d+ bytes instead of \d+",
        "machines run different NCCL versions or settings",
        "install the same build of torch everywhere and unset NCCL_* variables, or use --backend gloo",
    ),
    known(
        "nccl-system-error",
        r"unhandled (?:system|cuda) error|ncclSystemError|ncclUnhandledCudaError",
        "NCCL met an error of the system or of a driver: often a network interface that leads to no other machine, "
        "too little shared memory, or machines with different NCCL versions",
        "start again with NCCL_DEBUG=WARN: the line before the error names the cause; potluck doctor checks "
        "interfaces, /dev/shm and versions; --backend gloo trains without NCCL",
    ),
    known(
        "duplicate-gpu",
        r"Duplicate GPU detected",
        "two workers use one GPU",
        "start one worker a device; potluck doctor --check duplicate-gpu looks at CUDA_VISIBLE_DEVICES",
    ),
    known(
        "shm-small",
        r"creating shared memory segment|\bbus error\b|\bSIGBUS\b|exit ?code\s*: -7\b|"
        r"unable to (?:open|write to|mmap|allocate) (?:shared memory|file </torch_)",
        "/dev/shm is full or too small",
        "potluck doctor --check shm-small prints the line; a container wants --ipc=host",
    ),
    known(
        "arch-mismatch",
        r"no kernel image is available",
        "this build of torch has no code for this card",
        "potluck doctor --check arch-mismatch names the build that has",
    ),
    known(
        "collective-mismatch",
        r"op\.preamble\.length <= op\.nbytes|Detected mismatch between collectives",
        "the workers do not run the same code or model: they exchange tensors of different sizes",
        "put the same code on every machine; the one that differs printed another digest at its start",
    ),
    known(
        "model-mismatch",
        r"DDP expects same model|inconsistent (?:\d+ )?params",
        "the workers do not have the same model",
        "put the same code and settings on every machine",
    ),
    known(
        "collective-timeout",
        r"Watchdog caught collective operation timeout|Timed out waiting \d+ms for (?:recv|send) operation",
        "a worker stopped answering in the middle of a step",
        "look at the machine whose log ends first; with Potluck the others go on without it",
    ),
    known(
        "peer-died",
        rf"Connection closed by peer {_ADDRESS}|Connection reset by peer",
        "{machine} left: its process ended, or the machine did",
        "look for the first error in its own log; with Potluck the others go on without it",
    ),
    known(
        "hidden-traceback",
        r"error_file: <N/A>",
        "torchrun hides the worker's own error",
        "read the first Traceback above it, or that worker's log",
    ),
    known(
        "ephemeral-ports",
        rf"(?:timed out|timeout)[^\n]*connect\w*[^\n]*?{_ADDRESS}|"
        rf"connect\w*[^\n]*?{_ADDRESS}[^\n]*(?:timed out|timeout)|Connection timed out",
        "{machine} does not answer on a high port: its firewall or antivirus program drops the packets, or it is off",
        f"{_JOIN}; else let the other machines reach all high ports of {{machine}}",
    ),
    known(
        "disk-full",
        r"No space left on device|\[Errno 28\]|PytorchStreamWriter failed writing file",
        "the disk is full",
        "potluck doctor --check disk-full names the folder and a roomier place",
    ),
    known(
        "killed",
        r"\bSIGKILL\b|exit ?code\s*: -9\b|^(?:\S+: line \d+:)?\s*(?:\[\d+\][+-]?\s*)?(?:\d+\s+)?Killed(?:\s{2,}.*)?$",
        "somebody killed the process, or the system did because memory ran out",
        "see whether it was memory: sudo dmesg | grep -i 'out of memory'; if so, lower --micro-batch, or set "
        "--memory-limit with --enable-profiling: the result stays the same",
    ),
    known(
        "native-fault",
        r"\bSIGSEGV\b|exit ?code\s*: -11\b",
        "a fault in native code: a driver, a compiled extension, or memory",
        "look at the stack above it for the library; try without it, and on another machine",
    ),
    known(
        "other-processor",
        r"\bSIGILL\b|Illegal instruction|exit ?code\s*: -4\b",
        "a library built for another processor",
        "on that machine install the build of torch for its processor",
    ),
    known(
        "out-of-memory",
        r"CUDA out of memory|torch\.OutOfMemoryError",
        "the batch does not fit into the GPU's memory",
        "lower --micro-batch: the result stays the same; or --gradient-checkpointing",
    ),
)

KNOWN_ERRORS = (*KNOWN_IN_POTLUCK, *_KNOWN_BETWEEN_MACHINES, *KNOWN_IN_SCRIPTS)
