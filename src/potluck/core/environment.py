"""The only reader of environment variables."""

import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from potluck.core.exchange_options import EXCHANGE_VARIABLES, ExchangeValue
from potluck.core.ranks import ranks_at_lighthouse, read_ranks
from potluck.core.torchrun_variables import visible_cards, without_cards


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """This process's environment variables, with Potluck's defaults for those that are not set."""

    machine: str
    """Name of this machine: POTLUCK_NAME, else its hostname, which in a container is the container's id."""

    runs_dir: Path
    """Where run folders go: POTLUCK_RUNS_DIR, else ./experiments."""

    data_dir: Path
    """Where datasets are kept: POTLUCK_DATA_DIR, else ./data."""

    home: Path
    """Folder for what Potluck keeps on this computer between runs: POTLUCK_HOME, else ~/.potluck."""

    is_quiet: bool = False
    """POTLUCK_QUIET=1: a script that no host started prints notices only."""

    is_tuning: bool = True
    """POTLUCK_TUNING=0: as --no-tuning."""

    frozen_precision: str | None = None
    """POTLUCK_FROZEN_PRECISION: bf16 or fp16, in which this machine keeps frozen parameters; as loaded by default."""


DEFAULT_PORT = 29500


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How this process was started as one of several workers."""

    lighthouse: str | None
    """POTLUCK_LIGHTHOUSE: http://HOST:PORT of a torchft lighthouse; with it MASTER_ADDR is not needed."""

    secret: str
    """POTLUCK_SECRET: the secret that the workers of a run share, to authenticate each other."""

    worker: int
    """POTLUCK_WORKER, else RANK: this worker's number in the run's files."""

    expected: int
    """POTLUCK_WORKERS, else WORLD_SIZE: how many workers to wait for before the first step."""

    share: int | None
    """POTLUCK_SHARE: this worker's share of every global batch, set by hand, in proportion to other workers' shares."""

    master: tuple[str, int] | None
    """Address and port from flags, else MASTER_ADDR and MASTER_PORT as torchrun sets them; None for a single worker.

    The address is empty for a worker 0 that was given none: it uses its machine's own.
    """

    rank: int
    local_rank: int
    """LOCAL_RANK: the index of this worker's device on this machine."""

    num_threads: int | None
    """POTLUCK_THREADS; under torchrun, which sets one thread a worker, the machine's cores divided by its workers.

    In a container with a CPU quota, the quota's cores are divided.
    """

    has_agent_store: bool
    """TORCHELASTIC_USE_AGENT_STORE: torchrun already serves a store at MASTER_ADDR and MASTER_PORT."""

    keep: tuple[str, ...] = ()
    """POTLUCK_KEEP: machines that take part even if they slow the run, besides those that the script names."""

    exchange: tuple[tuple[str, str], ...] = ()
    """Names and values of the options of the exchange that the command gives, in place of the script's own."""

    run: str | None = None
    """POTLUCK_RUN: the run's name on every worker, in place of the name that the script gives."""

    device: str | None = None
    """POTLUCK_DEVICE: this worker's device, if the script names none."""

    resume: bool = False
    """POTLUCK_RESUME: resume from this machine's newest checkpoint of the run, if there is one."""

    host: str = ""
    """POTLUCK_HOST: the machine that hosts the run; its worker, if it has one, saves files for the script."""

    gate: str | None = None
    """POTLUCK_GATE: the socket of this machine's gate; other machines of the run reach this worker through the gate."""

    gate_run: str = ""
    """POTLUCK_GATE_RUN: the id by which the gate knows the run."""

    address: str | None = None
    """POTLUCK_ADDRESS: where this worker listens; by default, this machine's address on the route to the lighthouse."""

    gradient_address: str | None = None
    """POTLUCK_GRADIENT_ADDRESS: where this worker exchanges gradients past the gate, unencrypted (--direct)."""

    lan_address: str | None = None
    """POTLUCK_LAN_ADDRESS: where other machines reach this one past its gate; NCCL's interface is on that route."""

    notes: tuple[str, ...] = ()
    """What a person should know about the variables of the launch: sentences to print."""

    @property
    def is_alone(self) -> bool:
        return self.lighthouse is None and self.master is None

    @property
    def is_seen(self) -> bool:
        """Whether a user sees this worker's output: the first worker's on each machine, unless an agent started it."""
        return self.lighthouse is None and self.local_rank == 0

    @property
    def decides(self) -> bool:
        """Whether this worker names the run and starts the lighthouse for the other workers."""
        return self.lighthouse is None and self.rank == 0


def read_launch(master: tuple[str, int] | None = None, quota: int | None = None) -> Launch:
    """Read the Launch from Potluck's variables and torchrun's; `master`, from flags, overrides MASTER_ADDR and port.

    `quota`: how many threads a container allows all workers of this machine together; None without a quota.
    """
    get = os.environ.get
    lighthouse, (gate, gate_run) = get("POTLUCK_LIGHTHOUSE"), read_gate()
    variables = _with_hidden_ranks()
    ranks = read_ranks(variables, master) if lighthouse is None else ranks_at_lighthouse(variables)
    return Launch(
        lighthouse=lighthouse,
        secret=get("POTLUCK_SECRET") or "",
        worker=int(get("POTLUCK_WORKER") or ranks.rank),
        expected=int(get("POTLUCK_WORKERS") or ranks.world_size),
        share=int(share) if (share := get("POTLUCK_SHARE")) else None,
        master=None if ranks.master_addr is None else (ranks.master_addr, ranks.master_port or DEFAULT_PORT),
        rank=ranks.rank,
        local_rank=ranks.local_rank,
        num_threads=read_threads(quota),
        has_agent_store=get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        keep=tuple(filter(None, (get("POTLUCK_KEEP") or "").split(","))),
        exchange=tuple((name, value) for name, variable in EXCHANGE_VARIABLES.items() if (value := get(variable))),
        run=get("POTLUCK_RUN"),
        device=get("POTLUCK_DEVICE"),
        resume=get("POTLUCK_RESUME") == "1",
        host=get("POTLUCK_HOST") or "",
        gate=gate,
        gate_run=gate_run,
        address=get("POTLUCK_ADDRESS"),
        gradient_address=get("POTLUCK_GRADIENT_ADDRESS"),
        lan_address=get("POTLUCK_LAN_ADDRESS"),
        notes=ranks.notes,
    )


def read_threads(quota: int | None = None) -> int | None:
    """How many threads a worker uses: Launch explains num_threads, read_launch the `quota`."""
    get = os.environ.get
    threads = int(get("POTLUCK_THREADS") or 0)
    if not threads and get("TORCHELASTIC_RUN_ID"):
        threads = _threads_of_each(int(_with_hidden_ranks().get("LOCAL_WORLD_SIZE") or 1), quota)
    return threads or None


def _threads_of_each(num_workers: int, quota: int | None) -> int:
    """Threads for each of several workers on this machine: its cores, or a container's quota of them, divided."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, quota or cores) // num_workers)


def read_gate() -> tuple[str | None, str]:
    """The socket of this machine's gate, if there is one, and the id by which it knows the run."""
    return os.environ.get("POTLUCK_GATE"), os.environ.get("POTLUCK_GATE_RUN") or ""


def read_shared_data() -> str:
    """POTLUCK_DATA: the run's folders of data on this machine, as JSON of `sharing.folders`; empty without any."""
    return os.environ.get("POTLUCK_DATA") or ""


def read_data_limit() -> str | None:
    """POTLUCK_DATA_LIMIT: how much disk space data of other machines may take here, such as 50GB."""
    return os.environ.get("POTLUCK_DATA_LIMIT") or None


def read_experiment_name() -> str | None:
    """EXPERIMENT_NAME: the run's name for commands that are given none."""
    return os.environ.get("EXPERIMENT_NAME") or None


def read_meeting_point() -> tuple[str, int]:
    """MASTER_ADDR and MASTER_PORT: where rank 0 serves the store of a script that does not use Potluck."""
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def is_in_notebook() -> bool:
    """Whether a notebook's kernel started this process: the kernel's cells show lines and cannot redraw them."""
    return "JPY_PARENT_PID" in os.environ


def is_kernel() -> bool:
    """Whether this process is itself a notebook's kernel: no script can be started again in its place."""
    return Path(sys.argv[0]).name == "ipykernel_launcher.py"


def with_variables(more: Mapping[str, str]) -> dict[str, str]:
    """This process's environment variables and `more`, for another process.

    POTLUCK_JOIN, which lets in whoever has it, is not passed on: the process may run somebody's script.
    """
    return {**{name: value for name, value in os.environ.items() if name != "POTLUCK_JOIN"}, **more}


_WORKER_VARIABLES = re.compile(r"^POTLUCK_|^(MASTER_ADDR|MASTER_PORT|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE)$")


_hidden_ranks: dict[str, str] = {}


def hide_ranks() -> None:
    """Take RANK, WORLD_SIZE and so on out of the environment; read_launch still knows them.

    Libraries that find these variables, such as Accelerate, connect to the other workers themselves.
    """
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        if name in os.environ:
            _hidden_ranks[name] = os.environ.pop(name)


def _with_hidden_ranks() -> dict[str, str]:
    return {**os.environ, **_hidden_ranks}


def become_worker(variables: Mapping[str, str]) -> None:
    """Make this process the worker that these variables describe; what described it before is removed."""
    _hidden_ranks.clear()
    for name in [name for name in os.environ if _WORKER_VARIABLES.match(name)]:
        del os.environ[name]
    os.environ.update(variables)


def as_machine(name: str, threads: int | None = None) -> dict[str, str]:
    """This process's environment variables for another process that acts for the machine of that name."""
    return with_variables({"POTLUCK_NAME": name, **({} if threads is None else {"POTLUCK_THREADS": str(threads)})})


def exchange_variables(options: Mapping[str, ExchangeValue]) -> dict[str, str]:
    """Variables that bring these options of the exchange to a worker."""
    return {EXCHANGE_VARIABLES[name]: str(value) for name, value in options.items()}


def solo_variables(
    run: str | None, given: Mapping[str, str], exchange: Mapping[str, ExchangeValue], *, resume: bool
) -> dict[str, str]:
    """Variables for a script that trains on this machine alone, as the run of that name, with the `given` ones."""
    named = {} if run is None else {"POTLUCK_RUN": run}
    resumed = {"POTLUCK_RESUME": "1"} if resume else {}
    return {**run_variables(given), **exchange_variables(exchange), **named, **resumed}


def with_workers_of_one_machine(
    devices: list[str], port: int, more: Mapping[str, str], quota: int | None = None
) -> list[dict[str, str]]:
    """The environment variables of one worker for each device of this machine, as torchrun would set them.

    `quota`: how many threads a container allows all of them together; None without a quota.
    """
    threads = _threads_of_each(len(devices), quota)
    shared = {
        "WORLD_SIZE": str(len(devices)),
        "LOCAL_WORLD_SIZE": str(len(devices)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "POTLUCK_THREADS": os.environ.get("POTLUCK_THREADS") or str(threads),
        **more,
    }
    return [
        with_variables(
            {
                **shared,
                **without_cards(device, devices),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "POTLUCK_DEVICE": device,
            }
        )
        for rank, device in enumerate(devices)
    ]


def run_variables(given: Mapping[str, str]) -> dict[str, str]:
    """The variables of `--env` for a worker, with their names in POTLUCK_ENV, so that the worker can record them."""
    return {**given, "POTLUCK_ENV": ",".join(given)} if given else {}


def read_run_variables() -> list[str]:
    """The variables that were given with `--env`, as NAME=VALUE."""
    names = (os.environ.get("POTLUCK_ENV") or "").split(",")
    return [f"{name}={os.environ[name]}" for name in names if name in os.environ]


def plain_solo_variables(more: Mapping[str, str], devices: Sequence[str], quota: int | None = None) -> dict[str, str]:
    """This process's environment variables and `more`, for one of several processes that share this machine's cores.

    `quota`: how many threads a container allows all of them together; None without a quota.
    """
    is_shared = len(devices) > 1 or quota is not None
    threads = {"OMP_NUM_THREADS": str(_threads_of_each(len(devices), quota))} if is_shared else {}
    return {"GLOO_SOCKET_IFNAME": "lo", **threads, **with_variables({**own_cards(devices), **more})}


def own_cards(devices: Sequence[str]) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES for a script's processes on these devices of this machine."""
    return visible_cards(devices, os.environ.get("CUDA_VISIBLE_DEVICES"))


def gate_variables(gate: str, run: str, address: str) -> dict[str, str]:
    """Variables for a process that other machines reach through this machine's gate; Launch explains each."""
    return {"POTLUCK_GATE": gate, "POTLUCK_GATE_RUN": run, "POTLUCK_ADDRESS": address}


def quieten_torchft() -> None:
    """Limit the log of torchft's native code to warnings, unless RUST_LOG is set: it writes a kilobyte a step."""
    os.environ.setdefault("RUST_LOG", "warn")


def quieten_kineto() -> None:
    """Let torch's profiler write no log lines to stderr, unless KINETO_LOG_LEVEL is set; call it before the first."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def use_plain_kernels() -> None:
    """Make torch, imported later, compute without the processor's vector instructions: with them, random normal
    numbers differ in their last bits from processor to processor.
    """
    os.environ["ATEN_CPU_CAPABILITY"] = "default"


def read_nccl_variables() -> dict[str, str]:
    """NCCL's variables; an empty value counts as none, as it does for NCCL."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith("NCCL_") and value}


def outlive_lost_peers() -> None:
    """Let torchft abort NCCL when a peer is lost: by default torch's watchdog ends the whole process first."""
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")


def add_variables(more: Mapping[str, str]) -> None:
    """Set environment variables in this process, for libraries that have not read them yet."""
    os.environ.update(more)


def keep_compiled_code(home: Path) -> None:
    """torch.compile keeps code in Potluck's folder, unless told otherwise: torch's own is empty after a restart."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(home / "compiled"))


def read_environment() -> Environment:
    """Read the Environment now; nothing is cached, so a changed variable takes effect."""
    machine = os.environ.get("POTLUCK_NAME") or socket.gethostname().split(".")[0] or "machine"
    return Environment(
        machine=re.sub(r"[^A-Za-z0-9._-]", "-", machine).lstrip(".") or "machine",  # it becomes part of file names
        runs_dir=Path(os.environ.get("POTLUCK_RUNS_DIR") or "experiments"),
        data_dir=Path(os.environ.get("POTLUCK_DATA_DIR") or "data"),
        home=Path(os.environ.get("POTLUCK_HOME") or Path.home() / ".potluck"),
        is_quiet=(os.environ.get("POTLUCK_QUIET") or "0") != "0",
        is_tuning=(os.environ.get("POTLUCK_TUNING") or "1") != "0",
        frozen_precision=os.environ.get("POTLUCK_FROZEN_PRECISION") or None,
    )


def take_join_line() -> str | None:
    """POTLUCK_JOIN: the line for `potluck join` without one; removed from the environment, so no worker inherits it."""
    return os.environ.pop("POTLUCK_JOIN", "").strip() or None


def read_dashboard_password() -> str | None:
    """POTLUCK_DASHBOARD_PASSWORD: the password that visitors of the dashboard must enter; None if there is none."""
    return os.environ.get("POTLUCK_DASHBOARD_PASSWORD") or None


def with_dashboard_password(password: str | None) -> dict[str, str]:
    """This process's environment variables and the password, for the dashboard: other users cannot read variables."""
    return with_variables({} if password is None else {"POTLUCK_DASHBOARD_PASSWORD": password})


_NETWORK_VARIABLES = re.compile(
    r"^(GLOO|NCCL|MASTER|CUDA_VISIBLE|TORCH_NCCL|TP)_[A-Z0-9_]*$|^(RANK|WORLD_SIZE|LOCAL_WORLD_SIZE)$"
)


def read_network_variables() -> dict[str, str]:
    """Variables that steer torch's networking; none of them holds a secret."""
    return {name: value for name, value in sorted(os.environ.items()) if _NETWORK_VARIABLES.match(name)}


_SERVICE_VARIABLES = re.compile(
    r"^POTLUCK_(HOME|RUNS_DIR|DATA_DIR|NAME|FROZEN_PRECISION)$|^(GLOO|NCCL|CUDA_VISIBLE)_[A-Z0-9_]*$"
)


def read_service_variables() -> dict[str, str]:
    """Variables that a service keeps from the shell that made it; none of them holds a secret."""
    return {name: value for name, value in sorted(os.environ.items()) if _SERVICE_VARIABLES.match(name)}


def read_config_dir() -> Path:
    """XDG_CONFIG_HOME: the folder of this user's settings, ~/.config by default."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def read_wsl_distribution() -> str:
    """WSL_DISTRO_NAME: the name by which `wsl --list` knows this distribution; empty outside of WSL."""
    return os.environ.get("WSL_DISTRO_NAME") or ""
