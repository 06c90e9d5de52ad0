"""A cluster that is up, for as long as a `with` block lasts."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from lab import cgroup_layout, cgroups, record, requirements, schedule, sweep, wiring
from lab.cluster import Cluster, MachineSpec
from lab.cluster_file import load_cluster
from lab.errors import LabError, did_you_mean
from lab.machine import Machine
from lab.namespaces import ProcessId, boot_id, children_in_new_pid_namespace, joining, run_in_network_of
from lab.process import Process
from lab.record import STATE_DIR, LabRecord, MachineRecord, PortRecord
from lab.schedule import Action, Scheduled
from lab.uplink import UplinkCable

HOLDER = Path(__file__).with_name("holder.py")
SWITCH = "switch"
END_S = 10.0
# No name server: a name that is not in the hosts file fails at once, and no query reaches the real network.
NO_NAME_SERVER = {"/etc/resolv.conf": "", "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n"}


class Lab:
    """Machines of a cluster, up from the beginning of the `with` block to its end.

    with Lab("laptops") as lab:
        worker = lab["lily"].start(["python", "train.py"])
        lab.when_printed(worker, "step 100", lab["lily"].cut).then(10.0, lab["lily"].mend)
    """

    def __init__(self, cluster: Cluster | str | Path, *, name: str | None = None, state_dir: Path = STATE_DIR) -> None:
        self.cluster = cluster if isinstance(cluster, Cluster) else load_cluster(cluster)
        self._wanted_name = _checked_name(name or self.cluster.name)
        self._state_dir = state_dir
        self._record: LabRecord | None = None
        self._machines: dict[str, Machine] = {}
        self.uplinks: tuple[UplinkCable, ...] = ()
        self._holders: list[subprocess.Popen[bytes]] = []
        self._scheduled: list[Scheduled] = []

    @property
    def name(self) -> str:
        """The lab's name, by which commands such as `python -m lab show --lab NAME` find it."""
        return self._up.name

    @property
    def machines(self) -> tuple[Machine, ...]:
        return tuple(self._machines.values())

    def __getitem__(self, machine: str) -> Machine:
        if machine not in self._machines:
            raise LabError(f"no machine is called {machine!r}", fix=did_you_mean(machine, self._machines))
        return self._machines[machine]

    def after(self, wait_s: float, action: Action) -> Scheduled:
        """Do an action `wait_s` seconds from now: lab.after(5, lab["lily"].freeze)."""
        return self._keep(schedule.after(wait_s, action))

    def when_printed(self, process: Process, text: str, action: Action) -> Scheduled:
        """Do an action when the process prints a line that contains `text`."""
        return self._keep(schedule.when_printed(process, text, action))

    def is_up(self) -> bool:
        """Whether the lab is still up; another process may have taken it down."""
        return self._record is not None and record.path_of(self._record.name, self._state_dir).exists()

    def __enter__(self) -> "Lab":
        needs_nft = any(machine.firewall or machine.behind for machine in self.cluster.machines)
        requirements.check(firewall=needs_nft)
        _check_disks(self.cluster)
        try:
            self._build()
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wanted = [one for scheduled in self._scheduled for one in scheduled.family() if not one.is_cancelled]
        self._take_down()
        if kind is None:
            for scheduled in wanted:
                scheduled.check()

    def _build(self) -> None:
        ports = wiring.plan_ports(self.cluster)
        layout = cgroups.read_layout()
        with record.locked(self._state_dir):
            sweep.remove_abandoned(self._state_dir)
            name = record.free_name(self._wanted_name, self._state_dir)
            self._note(
                LabRecord(
                    name=name,
                    cluster=self.cluster.name,
                    owner=ProcessId.of(os.getpid()),
                    boot_id=boot_id(),
                    layout=layout,
                    cgroup_dirs=tuple(cgroup_layout.lab_dirs(layout, name)),
                    machines=tuple(_machine_record(machine, ports) for machine in self.cluster.machines),
                )
            )
        names = [machine.name for machine in self.cluster.machines]
        cgroups.make_directories(layout, name, [cgroup_layout.HOLDERS, *names])
        self._start_holders(ports)
        self._machines = {name: Machine(self._up, name) for name in names}
        for machine in self.cluster.machines:
            self._machines[machine.name].slow(machine.cores)
            self._machines[machine.name].limit_memory(machine.memory_bytes)
        self._wire(ports)

    def _start_holders(self, ports: tuple[wiring.Port, ...]) -> None:
        """Start the switch and the machines, all at once, and put their process ids on record."""
        up = self._up
        addresses = wiring.addresses_of(ports)
        wanted: dict[str, dict[str, Any]] = {SWITCH: _holding(SWITCH, {}, None, {})}
        for machine in self.cluster.machines:
            files = {
                "/etc/hostname": f"{machine.hostname}\n",
                "/etc/hosts": wiring.hosts_file(machine, self.cluster, addresses),
                **NO_NAME_SERVER,
            }
            disks = {disk.path: disk.size_bytes for disk in machine.disks}
            wanted[f"machine {machine.name}"] = _holding(machine.hostname, files, _shm_bytes(machine), disks)
        members = cgroup_layout.member_dirs(up.layout, up.name, cgroup_layout.HOLDERS)
        for settings in wanted.values():
            holder = _start_holder(members)
            self._holders.append(holder)
            assert holder.stdin is not None
            holder.stdin.write(json.dumps(settings).encode() + b"\n")
            holder.stdin.flush()
        switch, *machines = self._holders
        up = replace(up, switch=ProcessId.of(switch.pid))
        for machine, holder in zip(self.cluster.machines, machines, strict=True):
            up = up.with_holder(machine.name, ProcessId.of(holder.pid))
        self._note(up)
        for title, holder in zip(wanted, self._holders, strict=True):
            _await_ready(title, holder)

    def _wire(self, ports: tuple[wiring.Port, ...]) -> None:
        switch, *machines = (holder.pid for holder in self._holders)
        pids = dict(zip((machine.name for machine in self.cluster.machines), machines, strict=True))
        run_in_network_of(switch, ["ip", "-batch", "-"], text_in=wiring.switch_batch(ports, pids))
        for machine in self.cluster.machines:
            run_in_network_of(pids[machine.name], ["ip", "-batch", "-"], text_in=wiring.machine_batch(machine, ports))
            for link in machine.links:
                if link.rate_bits_per_s is not None:
                    self._machines[machine.name].limit_rate(link.rate_bits_per_s, link.interface)
            if machine.firewall:
                self._machines[machine.name].set_firewall(machine.firewall)
        self.uplinks = tuple(UplinkCable(switch, index, one) for index, one in enumerate(self.cluster.uplinks))
        for gateway in wiring.plan_gateways(self.cluster):
            self._translate(gateway, switch, pids)

    def _translate(self, gateway: wiring.Gateway, switch: int, pids: dict[str, int]) -> None:
        """Set up NAT on a gateway, a router or a machine with a bridge, and route the machines behind it there."""
        where = pids.get(gateway.name, switch)
        if gateway.outside:
            run_in_network_of(where, ["ip", "-batch", "-"], text_in=wiring.router_batch(gateway))
        run_in_network_of(where, ["sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"])
        run_in_network_of(where, ["nft", "-f", "-"], text_in=wiring.translation_script(gateway))
        for machine in self.cluster.machines:
            if machine.behind == gateway.name:
                route = wiring.default_route(gateway)
                run_in_network_of(pids[machine.name], ["ip", "-batch", "-"], text_in=route)

    def _take_down(self) -> None:
        with _uninterrupted():
            for scheduled in [one for first in self._scheduled for one in first.family()]:
                scheduled.cancel()
            if self._record is None:
                return
            for holder in self._holders:
                assert holder.stdin is not None
                holder.stdin.close()
            # Kill every process first; then their exit statuses can be collected without waiting for any of them.
            cgroups.remove_directories(list(self._record.cgroup_dirs))
            try:
                self._collect()
            except subprocess.TimeoutExpired as error:
                fix = "end this program, then: python -m lab down"
                raise LabError(f"lab {self._record.name!r} does not end: {error}", fix=fix) from error
            sweep.remove(self._record, self._state_dir)
            self._record = None

    def _collect(self) -> None:
        """Collect every process's exit status and the rest of its output."""
        for process in [one for machine in self.machines for one in machine.processes]:
            process.close(END_S)
        for holder in self._holders:
            holder.wait(END_S)
            assert holder.stdout is not None
            holder.stdout.close()

    def _keep(self, scheduled: Scheduled) -> Scheduled:
        self._scheduled.append(scheduled)
        return scheduled

    def _note(self, up: LabRecord) -> None:
        self._record = up
        record.write(up, self._state_dir)

    @property
    def _up(self) -> LabRecord:
        if self._record is None:
            raise LabError("this lab is not up", fix="use it inside its with block")
        return self._record


def _checked_name(name: str) -> str:
    """The name, or LabError if it cannot be part of a path: the record's file and the cgroups are named after it."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", name):
        raise LabError(f"a lab cannot be called {name!r}", fix="use letters, digits, dots and dashes: --name try-1")
    return name


def _machine_record(machine: MachineSpec, ports: tuple[wiring.Port, ...]) -> MachineRecord:
    mine = [port for port in ports if port.machine == machine.name]
    return MachineRecord(
        name=machine.name,
        ports=tuple(
            PortRecord(
                port=port.name,
                interface=port.link.interface,
                network=port.link.network,
                address=port.address,
                mtu=port.link.mtu,
            )
            for port in mine
        ),
    )


def _shm_bytes(machine: MachineSpec) -> int | None:
    """The declared size of /dev/shm, else half of the memory, which is Linux's default."""
    return machine.shm_bytes or (machine.memory_bytes // 2 if machine.memory_bytes else None)


def _holding(hostname: str, files: dict[str, str], shm_bytes: int | None, disks: dict[str, int]) -> dict[str, Any]:
    return {"hostname": hostname, "files": files, "shm_bytes": shm_bytes or "50%", "disks": disks}


def _check_disks(cluster: Cluster) -> None:
    for machine in cluster.machines:
        for disk in machine.disks:
            if not Path(disk.path).is_dir():
                raise LabError(
                    f"{machine.name} wants a disk at {disk.path}, which is no directory", fix=f"mkdir -p {disk.path}"
                )


def _start_holder(cgroup_dirs: list[str]) -> subprocess.Popen[bytes]:
    command = joining(cgroup_dirs, [sys.executable, "-I", "-S", str(HOLDER)])
    with children_in_new_pid_namespace():
        return subprocess.Popen(
            command,
            cwd="/",
            env={**os.environ, "container": "lab"},  # a machine of its own, also if the lab is inside a container
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C in the terminal must not end the holder
        )


def _await_ready(title: str, holder: subprocess.Popen[bytes]) -> None:
    assert holder.stdout is not None
    answer = holder.stdout.readline().decode().strip()
    if answer != "ready":
        answer += holder.stdout.read().decode().rstrip()
        raise LabError(f"{title} did not start: {answer}", fix="see whether the kernel has what the message names")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore signals: a second Ctrl-C, pressed while the lab is being removed, must not leave half of it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number)]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
