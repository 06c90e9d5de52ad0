"""Speed of `potluck run --exchange MODE` on slow links in the lab, against the sum of the machines' solo speeds.

Machines join a host on the first machine and go through their gates, as users' do; all machines are kept. A run's speed
is that of its steps after the first ones, in rounds of whole rounds only.
"""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support import byte_model, byte_model_size
from benchmarks.support.gathering import Gathering
from benchmarks.support.lab_machines import READY_S, ROOT, START_CORES, LabMachines, wait_for_all
from lab.cluster import Cluster
from lab.cluster_file import SHIPPED_DIR, load_cluster
from potluck.core.run_folder import RunFolder
from potluck.events.log import read_records
from potluck.events.types import StepCommitted
from potluck.planning.codes import FP16, INT4, INT8
from potluck.planning.round_rule import round_steps
from potluck.report.account_file import read_account

SCRIPT = ROOT / "benchmarks" / "support" / "byte_model.py"
WIRE = {"exact": 1.0, **{code.name: code.wire_part for code in (FP16, INT8, INT4)}, "rounds": 0.0, "islands": 0.0}
"""By mode: about how much of an fp32 exchange a step sends; it decides only how many steps are made."""
ROUNDS = ("rounds", "islands")
WARM_UP_STEPS = 8
LEAST_ROUNDS = 3
LONG_STEP_S = 2.0


@dataclass(frozen=True)
class Model:
    """A size of the byte model, and its r as measured on these machines."""

    rows: int
    r: float
    solo: dict[str, float]
    """Samples/s of each machine alone, all machines at the same time."""

    @property
    def sum_of_solo(self) -> float:
        return sum(self.solo.values())


@dataclass(frozen=True)
class Speed:
    """One run: its samples/s, or the line with which the program refused the mode."""

    samples_per_s: float | None
    num_steps: int = 0
    seconds: float = 0.0
    prediction_error: float | None = None
    """Of the run's own plans in these steps: 0.1 if they promised a tenth more samples/s than there were."""
    refused: str = ""


class SpeedLab:
    """The machines of one cluster, joined; models are sized and runs are timed on them."""

    def __init__(self, cluster: str, folder: Path) -> None:
        self.cluster = load_cluster(cluster)
        self.link_bits_per_s = byte_model_size.slowest_link(self.cluster)
        file = SHIPPED_DIR / f"{cluster}.yaml" if not cluster.endswith((".yaml", ".yml")) else Path(cluster)
        self.gathering = Gathering(folder, file.read_text())
        self._folder = folder
        self._num_solo = 0

    def __enter__(self) -> "SpeedLab":
        self.gathering.__enter__()
        try:
            self._gather()
        except BaseException:
            self.gathering.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.gathering.__exit__(None, None, None)

    def _gather(self) -> None:
        self.machines = LabMachines(self.gathering.lab)
        self.gathering.pinned = self.machines.pinned
        for machine in self.gathering.lab.machines:
            machine.slow(START_CORES)
        first, *others = self.machines.names
        self.gathering.host().expect(f"{first} is here", 60)
        self.gathering.join_all(*others)
        shutil.copy(SCRIPT, self.gathering.place(first))
        self.machines.settle()

    def solo(self, rows: int, batch: int, seconds: float) -> dict[str, float]:
        """Samples/s of a plain loop on every machine, all at the same time."""
        self._num_solo += 1
        go = self._folder / f"go-{self._num_solo}"
        command = ["python", "-m", "benchmarks.support.byte_model", "--plain", seconds, "--rows", rows]
        command += ["--batch", batch, "--go", go]
        processes = {}
        for name in self.machines.names:
            words = [str(word) for word in command]
            words[0] = sys.executable
            processes[name] = self.machines.start(name, words, self.gathering.variables(name))
        for process in processes.values():
            process.expect(byte_model.READY, READY_S)
        self.machines.settle()
        go.touch()
        wait_for_all(processes.values(), 120 + 20 * seconds)
        return {
            name: float(line.removeprefix(byte_model.SOLO))
            for name, process in processes.items()
            for line in process.lines()
            if line.startswith(byte_model.SOLO)
        }

    def model(self, rows: int, batch: int, seconds: float) -> Model:
        """A model of this size with its measured r."""
        solo = self.solo(rows, batch, seconds)
        r = byte_model_size.r_of(rows, sum(solo.values()), len(solo), self.link_bits_per_s, batch)
        return Model(rows, r, solo)

    def sized(self, r: float, batch: int, seconds: float) -> Model:
        """The model whose r is as wanted: its size follows from solo speeds, which follow from its size."""
        rows = 1
        for _ in range(2):
            speeds = self.solo(rows, batch, seconds / 2)
            rows = byte_model_size.rows_for(r, sum(speeds.values()), len(speeds), self.link_bits_per_s, batch)
        return self.model(rows, batch, seconds)

    def speed(self, mode: str, model: Model, batch: int, window_s: float) -> Speed:
        """One run of this mode, about as long as the window after its first steps."""
        compute_s = byte_model_size.compute_s(model.sum_of_solo, batch)
        step_s = compute_s * (1 + WIRE[mode] * model.r)
        first = WARM_UP_STEPS if step_s < LONG_STEP_S else 2
        num_steps = first + max(3, round(window_s / step_s))
        options = ["--exchange", mode]
        if mode in ROUNDS:
            steps = steps_of_a_round(model.r, batch)
            first = WARM_UP_STEPS + steps
            num_steps = first + max(LEAST_ROUNDS, round(window_s / step_s / steps)) * steps
            options += ["--warm-up-steps", str(WARM_UP_STEPS), "--round-steps", str(steps)]
        if mode == "islands":
            options += ["--islands", homes(self.cluster)]
        host = self.machines.names[0]
        before = set(self.gathering.place(host).glob("experiments/*"))
        options += [word for name in self.machines.names for word in ("--keep", name)]
        amount = ["--rows", model.rows, "--steps", num_steps, "--batch", batch, "--no-evaluation"]
        process = self.gathering.start(host, "run", *options, SCRIPT.name, *amount)
        try:
            code = process.wait(120 + 4 * num_steps * step_s)
        except BaseException:
            process.kill()
            raise
        if code:
            return Speed(None, refused=error_line(process.output))
        (folder,) = set(self.gathering.place(host).glob("experiments/*")) - before
        return speed_after(folder, host, first)


def homes(cluster: Cluster) -> str:
    """The machines of each network, as `--islands` takes them."""
    networks: dict[str, list[str]] = {}
    for machine in cluster.machines:
        networks.setdefault(machine.links[0].network, []).append(machine.name)
    return ",".join("+".join(names) for names in networks.values())


def steps_of_a_round(r: float, batch: int) -> int:
    """By Potluck's own rule, whose default needs more rounds than a speed takes and measured links."""
    return round_steps(batch, step_s=1.0, exchange_s=INT4.wire_stretch * INT4.wire_part * r)


def speed_after(folder: Path, machine: str, first: int) -> Speed:
    """Samples/s from the commit of step `first` to the last commit, by one machine's events."""
    committed = {
        record.event.step: (record.time, record.event.samples)
        for file in sorted(folder.glob(f"events/{machine}-*.jsonl"))
        for record in read_records(file)
        if isinstance(record.event, StepCommitted)
    }
    last = max(committed)
    seconds = committed[last][0] - committed[first][0]
    samples = sum(samples for step, (_, samples) in committed.items() if step > first)
    account = read_account(RunFolder(folder), first + 1)
    error = None if account is None else account.prediction_error
    return Speed(samples / seconds, num_steps=last - first, seconds=round(seconds, 2), prediction_error=error)


def error_line(output: str) -> str:
    """The line that says what went wrong; else the last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.strip().startswith("fix:")]
    errors = [line for line in lines if line.lower().startswith("error:")]
    return (errors or lines or ["no output"])[-1]
