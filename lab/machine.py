"""One machine of a lab that is up: run programs on it, inject faults, and read its state."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import wiring
from lab.cgroups import MachineCgroup
from lab.cluster import FirewallRule
from lab.errors import LabError, did_you_mean
from lab.namespaces import ProcessId, children_in_pid_namespace_of, entering, joining, run_in_network_of
from lab.process import Completed, Process
from lab.record import LabRecord, PortRecord

IFF_UP = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The resources that a machine has used so far, and uses now."""

    cpu_s: float
    memory_bytes: int
    sent_bytes: int
    received_bytes: int
    num_processes: int
    num_oom_kills: int


class Machine:
    """A machine of a lab; any process that can read the lab's record can make this object and use the machine."""

    def __init__(self, record: LabRecord, name: str) -> None:
        self._record = record
        self._machine = record.machine(name)
        self._cgroup = MachineCgroup(layout=record.layout, lab=record.name, machine=name)
        self._started: list[Process] = []

    def __repr__(self) -> str:
        return f"<machine {self.name} of lab {self._record.name}>"

    @property
    def name(self) -> str:
        return self._machine.name

    @property
    def address(self) -> str:
        """The machine's address on the main network."""
        return wiring.bare(self._machine.ports[0].address)

    def address_on(self, interface: str) -> str:
        """The machine's address on one of its links."""
        return wiring.bare(self._port(interface).address)

    # Programs

    def start(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | Path | None = None
    ) -> Process:
        """Start a program on the machine; `env` is laid over this process's environment.

        Python programs get PYTHONUNBUFFERED=1, so that their lines arrive when they are printed.
        """
        environment = {"PYTHONUNBUFFERED": "1", **(env or {})}
        popen = self._popen(command, environment, cwd, captured=True)
        process = Process(self.name, command, popen)
        self._started.append(process)
        return process

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_s: float = 60.0,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> Completed:
        """Run a program on the machine to its end."""
        process = self.start(command, env=env, cwd=cwd)
        try:
            returncode = process.wait(timeout_s)
        except BaseException:
            process.kill()
            raise
        return Completed(returncode=returncode, output=process.output)

    def run_in_terminal(self, command: Sequence[str]) -> int:
        """Run a program with this process's stdin, stdout and stderr; return its exit status."""
        popen = self._popen(command, {}, None, captured=False)
        try:
            while (status := _status_unless_interrupted(popen)) is None:
                pass
        finally:
            # A machine's PID namespace cannot end while the exit status of one of its processes is not collected.
            popen.kill()
            popen.wait()
        return status

    @property
    def processes(self) -> tuple[Process, ...]:
        """Programs that this object has started, also those that have ended."""
        return tuple(self._started)

    # Limits and faults

    def slow(self, cores: float) -> None:
        """Give the machine another number of cores, from now on."""
        if not 0.001 <= cores <= 1024:
            raise LabError(f"{cores:g} cores cannot be given", fix="choose a number from 0.001 up, such as 0.1")
        self._cgroup.set_cores(cores)

    def limit_memory(self, limit_bytes: int | None) -> None:
        """Give the machine another amount of memory, from now on; None lifts the limit."""
        self._cgroup.set_memory(limit_bytes)

    def limit_rate(self, rate_bits_per_s: int | None, interface: str | None = None) -> None:
        """Give a link another rate in both directions, from now on; None lifts the limit."""
        port = self._port(interface)
        for pid, end in ((self._switch_pid, port.port), (self._holder_pid, port.interface)):
            batch = wiring.rate_batch(end, rate_bits_per_s, port.mtu)
            run_in_network_of(pid, ["tc", "-batch", "-"], text_in=batch)

    def limit_packets(self, mtu: int, interface: str | None = None) -> None:
        """Make the switch silently drop packets above `mtu` to this machine, as a misconfigured tunnel does."""
        port = self._port(interface)
        run_in_network_of(self._switch_pid, ["ip", "link", "set", "dev", port.port, "mtu", str(mtu)])
        # Otherwise the kernel passes several packets as one large one, to which the MTU does not apply.
        for machine in self._record.machines:
            for end in (one for one in machine.ports if one.network == port.network):
                pid = _living(machine.holder, self._record.name)
                run_in_network_of(pid, ["ip", "link", "set", "dev", end.interface, "gso_max_segs", "1"])

    def set_firewall(self, rules: Sequence[FirewallRule]) -> None:
        """Replace the machine's firewall; no rules means none."""
        addresses = {
            machine.name: tuple(wiring.bare(port.address) for port in machine.ports)
            for machine in self._record.machines
        }
        for rule in rules:
            if rule.peer and rule.peer not in addresses:
                raise LabError(f"no machine is called {rule.peer!r}", fix=did_you_mean(rule.peer, addresses))
        script = wiring.firewall_script(rules, addresses)
        run_in_network_of(self._holder_pid, ["nft", "-f", "-"], text_in=script)

    def cut(self, interface: str | None = None) -> None:
        """Pull the cable at the switch: all of the machine's cables, or one."""
        self._set_ports(interface, "down")

    def mend(self, interface: str | None = None) -> None:
        """Plug the cable in again."""
        self._set_ports(interface, "up")

    def freeze(self, *, kernel_answers: bool = False) -> None:
        """Close the lid: every process stops and the machine answers nothing, not even a ping.

        With `kernel_answers` only the processes stop, as with SIGSTOP: the kernel goes on acknowledging what peers
        send and accepting their connections, but no program reads them.
        """
        self._cgroup.freeze()
        if not kernel_answers:
            self._set_ports(None, "nomaster")

    def thaw(self) -> None:
        """Open the lid: processes go on where they stopped."""
        self._rejoin_switch()
        self._cgroup.thaw()

    def kill(self) -> None:
        """SIGKILL every process of the machine. The machine stays, empty; a frozen one is thawed."""
        self._cgroup.kill()
        self._rejoin_switch()

    # State

    def is_frozen(self) -> bool:
        return self._cgroup.is_frozen()

    def is_cut(self) -> bool:
        """Whether any of the machine's cables is pulled."""
        return any(not int(self._port_file(port, "flags").read_text(), 16) & IFF_UP for port in self._machine.ports)

    def is_up(self) -> bool:
        """Whether the machine is still there."""
        return self._machine.holder is not None and self._machine.holder.is_alive()

    def cores(self) -> float:
        """The number of cores that the machine has now."""
        return self._cgroup.cores()

    def memory_limit_bytes(self) -> int | None:
        """The memory that the machine has now; None if there is no limit."""
        return self._cgroup.memory_limit_bytes()

    def usage(self) -> Usage:
        """CPU time, memory and traffic. What the switch received is what the machine sent."""
        ports = self._machine.ports
        return Usage(
            cpu_s=self._cgroup.cpu_seconds(),
            memory_bytes=self._cgroup.memory_bytes(),
            sent_bytes=sum(int(self._port_file(port, "statistics/rx_bytes").read_text()) for port in ports),
            received_bytes=sum(int(self._port_file(port, "statistics/tx_bytes").read_text()) for port in ports),
            num_processes=len(self._cgroup.processes()),
            num_oom_kills=self._cgroup.num_oom_kills(),
        )

    def pids(self) -> list[int]:
        """The processes that the machine has now, by the box's numbers."""
        return self._cgroup.processes()

    def _popen(
        self, command: Sequence[str], env: Mapping[str, str], cwd: str | Path | None, *, captured: bool
    ) -> subprocess.Popen[bytes]:
        # The directory is looked up inside the machine, whose disks may differ.
        directory = str(Path(cwd or Path.cwd()).absolute())
        inside = entering(self._holder_pid, ["env", f"--chdir={directory}", *command])
        with children_in_pid_namespace_of(self._holder_pid):
            return subprocess.Popen(
                joining(self._cgroup.directories, inside),
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL if captured else None,
                stdout=subprocess.PIPE if captured else None,
                stderr=subprocess.STDOUT if captured else None,
                start_new_session=captured,
            )

    def _rejoin_switch(self) -> None:
        lines = [f"link set {port.port} master {port.network}\n" for port in self._machine.ports]
        run_in_network_of(self._switch_pid, ["ip", "-batch", "-"], text_in="".join(lines))

    def _set_ports(self, interface: str | None, setting: str) -> None:
        ports = self._machine.ports if interface is None else (self._port(interface),)
        lines = [f"link set {port.port} {setting}\n" for port in ports]
        run_in_network_of(self._switch_pid, ["ip", "-batch", "-"], text_in="".join(lines))

    def _port(self, interface: str | None) -> PortRecord:
        ports = {port.interface: port for port in self._machine.ports}
        if interface is None:
            return self._machine.ports[0]
        if interface not in ports:
            raise LabError(f"{self.name} has no link called {interface!r}", fix=did_you_mean(interface, ports))
        return ports[interface]

    def _port_file(self, port: PortRecord, name: str) -> Path:
        # /proc shows the switch's own /sys, so that no process has to be started in its namespace.
        return Path(f"/proc/{self._switch_pid}/root/sys/class/net/{port.port}/{name}")

    @property
    def _holder_pid(self) -> int:
        return _living(self._machine.holder, self._record.name)

    @property
    def _switch_pid(self) -> int:
        return _living(self._record.switch, self._record.name)


def _status_unless_interrupted(popen: subprocess.Popen[bytes]) -> int | None:
    try:
        return popen.wait()
    except KeyboardInterrupt:
        # A terminal sends SIGINT to the program, too; from elsewhere only this process gets it, and passes it on.
        if not os.isatty(0):
            popen.send_signal(signal.SIGINT)
        return None


def _living(holder: ProcessId | None, lab: str) -> int:
    """The holder's process id; LabError if the holder is not alive any more."""
    if holder is None or not holder.is_alive():
        raise LabError(f"lab {lab!r} is not up any more", fix="start it again: python -m lab up <cluster>")
    return holder.pid
