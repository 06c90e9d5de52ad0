"""The account of a plain run, from outside: who was busy, who waited, what went over the network.

The script does not use Potluck, so its steps are not known. A machine that waits for others uses little of its
processor or GPU meanwhile: that is what this account goes by.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from potluck.core.words import listed
from potluck.doctor.lost_peer import tells_of_lost_peer
from potluck.events.state import RunState
from potluck.events.types import WorkersUsed

_APART = 1.3  # times busier, to be called the one that the others wait for
_IDLE = 0.5
_LITTLE_MB_PER_S = 1.0
_SHORT_S = 5.0  # of a shorter run there is too little to say
_OTHERS = 0.2  # of the cores: less is what a system does anyway


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineUse:
    """What one machine of a plain run used."""

    machine: str
    device: str
    ended: str
    """finished, stopped or failed; empty while its workers run, or if it was lost."""
    message: str
    """The error that ended its workers; empty if none did."""
    seconds: float
    cores: float
    workers_cores: float
    """Cores that the run kept busy, on average: its workers, and Potluck's agent and gate, which encrypts."""
    machine_cores: float | None
    """Cores that were busy with anything; None where it cannot be known."""
    gpu_busy: float | None
    """The mean over time and GPUs, 0 to 1; None without a GPU that reports it."""
    sent_bytes: int
    received_bytes: int
    folder: str
    files: tuple[str, ...]

    @property
    def busy(self) -> float:
        """The part of the time that the device of the run was busy: its GPUs, else the cores."""
        return self.workers_cores / self.cores if self.gpu_busy is None else self.gpu_busy

    @property
    def busy_text(self) -> str:
        cores = f"{self.workers_cores:.1f} of {self.cores:g} cores"
        return cores if self.gpu_busy is None else f"GPU {100 * self.gpu_busy:.0f} %, {cores}"


@dataclass(frozen=True, slots=True)
class PlainAccount:
    """The machines of a plain run, in the order of their ranks."""

    machines: tuple[MachineUse, ...]

    @classmethod
    def of(cls, states: Iterable[RunState]) -> "PlainAccount":
        """The account by the last events of each machine."""
        ordered = sorted(states, key=lambda state: state.worker)
        return cls(tuple(_use(state, state.used) for state in ordered if state.used is not None))

    @property
    def seconds(self) -> float:
        return max((one.seconds for one in self.machines), default=0.0)

    @property
    def ended(self) -> str:
        """How the run ended, by its workers: failed if one has failed; empty if a machine tells of no end."""
        endings = {one.ended for one in self.machines}
        return next((ending for ending in ("failed", "", "stopped") if ending in endings), "finished")

    @property
    def cause(self) -> str:
        """The error that ended the run, with its machine; empty if none did. The other workers ended because of it."""
        told = [one for one in self.machines if one.message]
        first = next((one for one in told if not tells_of_lost_peer(one.message)), next(iter(told), None))
        return "" if first is None else f"{first.machine}: {first.message}"

    @property
    def lost(self) -> str:
        """In a run that is over: the machines that tell of no end while others do; empty if there are none."""
        silent = [one.machine for one in self.machines if not one.ended]
        if not silent or len(silent) == len(self.machines):
            return ""
        return f"{listed(silent)} {'was' if len(silent) == 1 else 'were'} lost"

    def verdict(self) -> str:
        """Who waited for whom, as far as it can be seen from outside; empty for one machine or too little to say."""
        if len(self.machines) < 2 or self.seconds < _SHORT_S:
            return ""
        busiest = max(self.machines, key=lambda one: one.busy)
        if busiest.busy < _IDLE:
            rate = max(one.sent_bytes / one.seconds for one in self.machines if one.seconds) / 1e6
            idle = f"no machine's workers were busy for more than {100 * busiest.busy:.0f} % of the time"
            if rate < _LITTLE_MB_PER_S:
                return f"{idle}, and little went over the network: the script waited, or other programs were busy"
            return (
                f"{idle}; one machine sent {rate:,.1f} MB/s on average: if that is all that your network carries, "
                "they waited for it"
            )
        waited = [one for one in self.machines if one.busy * _APART < busiest.busy]
        if not waited:
            return "all machines were about equally busy: none waited much for another"
        names = listed([f"{one.machine} ({100 * (1 - one.busy):.0f} % idle)" for one in waited])
        verb = "waits" if len(waited) == 1 else "wait"
        return f"every machine computes an equal share, and {names} {verb} for {busiest.machine}, the slowest"

    def other_programs(self) -> str:
        """Machines on which other programs took a good part of the processor; empty if there are none."""
        if self.seconds < _SHORT_S:
            return ""
        told = [
            f"{one.machine_cores - one.workers_cores:.1f} of {one.cores:g} cores on {one.machine}"
            for one in self.machines
            if one.machine_cores is not None and one.machine_cores - one.workers_cores > _OTHERS * one.cores
        ]
        return f"other programs kept busy: {listed(told)}" if told else ""

    def written(self) -> list[str]:
        """Lines that say where the files are that the script has written."""
        return [
            f"{one.machine} has what the script wrote: {listed(one.files[:4])}"
            f"{' and more' if len(one.files) > 4 else ''} in {one.folder}"
            for one in self.machines
            if one.files
        ]

    def as_data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"machines": [asdict(one) for one in self.machines], "verdict": self.verdict()}


def _use(state: RunState, used: WorkersUsed) -> MachineUse:
    seconds = max(used.seconds, 1e-9)
    busy = [gpu.busy for gpu in used.gpus if gpu.busy is not None]
    return MachineUse(
        machine=state.machine,
        device=state.device,
        ended=state.ended,
        message=state.message,
        seconds=used.seconds,
        cores=used.cores,
        workers_cores=used.workers_cpu_s / seconds,
        machine_cores=None if used.machine_cpu_s is None else used.machine_cpu_s / seconds,
        gpu_busy=mean(busy) if busy else None,
        sent_bytes=used.sent_bytes,
        received_bytes=used.received_bytes,
        folder=used.folder,
        files=tuple(used.files),
    )
