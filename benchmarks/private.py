"""What privacy costs: the same training through the gates and directly, in turns of a second or two.

    python -m benchmarks.private --json

On each lab machine two workers train `simple_cnn` (1.6 MB of gradients), one in a run through the gates and one in a
run without; all machines change from one run to the other after each slice of steps. On lab machines with one core or
less the carrier takes processor time from training. With `spare`, a worker waits as for a GPU instead of computing,
and the processor is free. Then all-reduces of 1 and 25 MiB, direct and through gates in turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed import ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import PrefixStore
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import potluck
from benchmarks.support.crew import LabCrew
from benchmarks.support.lab_gates import LabGates
from benchmarks.support.lab_machines import LabMachines, wait_for_all, wait_for_go
from lab import Lab
from potluck.core.environment import read_launch
from potluck.engine.group.listening import Listening, open_gloo
from potluck.workloads.models.simple_cnn import SimpleCNN

WIDTHS = (32, 64, 128, 256)  # 391,946 parameters
NUM_CLASSES = 10
KEPT_SAMPLES = 2048
WAYS = ("direct", "gates")
NUM_SLICES = 8
SETTLING_STEPS = 3  # of each slice: caches and connections are the other run's
FIXED_S = 0.025  # of a step that does not depend on its samples, on one core
STORE_PORT, EXPOSED_PORT = 29530, 29531
SIZES_MIB = (1, 25)
_TURN_S = 0.002
_END_S = 400.0


@dataclass(frozen=True)
class Case:
    """A cluster at a step time; `spare` leaves the processor to the gate."""

    cluster: str
    step_ms: int
    spare: bool
    bar: float

    @property
    def key(self) -> str:
        return f"{self.cluster}_{self.step_ms}ms{'_spare' if self.spare else ''}"

    @property
    def slice_steps(self) -> int:
        return SETTLING_STEPS + max(8, 1200 // self.step_ms)


BARS = {50: 1.10, 200: 1.05}
SPARE_BAR = 1.02
CASES = [
    *(Case(cluster, step_ms, False, bar) for cluster in ("twins", "pair", "laptops") for step_ms, bar in BARS.items()),
    *(Case("twins", step_ms, True, SPARE_BAR) for step_ms in BARS),
]


def main() -> None:
    """Measure, print, and end with one JSON line if asked; exit 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", type=Path, help="be a worker, and leave the times here")
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--turns", type=Path)
    parser.add_argument("--slice-steps", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--reduce", type=json.loads, help="be one of those that reduce")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.worker is not None:
        train(options)
        return
    if options.reduce is not None:
        reduce(options.reduce)
        return
    result: dict[str, Any] = {"cases": {}, "all_reduce": {}}
    for case in CASES:
        if options.only in case.key:
            result["cases"][case.key] = found = measure(case)
            print(
                f"{case.key:20} direct {1e3 * found['direct_s']:6.1f} ms, gates {1e3 * found['gates_s']:6.1f} ms, "
                f"ratio {found['ratio']:.3f} (bar {case.bar}){'' if found['ok'] else '   MISSED'}; "
                f"processor of a gate a step, ms: {found['gate_cpu_ms']}",
                flush=True,
            )
    for cluster in ("pair", "laptops"):
        if options.only in f"{cluster}_reduce":
            result["all_reduce"][cluster] = measure_reduce(cluster)
            for size, found in result["all_reduce"][cluster].items():
                print(f"{cluster} all-reduce of {size}: {found}", flush=True)
    for step_ms in (50, 200):
        ratios = [one["ratio"] for key, one in result["cases"].items() if f"_{step_ms}ms" in key and "spare" not in key]
        spare = [one["ratio"] for key, one in result["cases"].items() if f"_{step_ms}ms_spare" in key]
        result[f"step_{step_ms}ms_ratio"] = max(ratios, default=None)
        result[f"step_{step_ms}ms_spare_ratio"] = max(spare, default=None)
    result["missed"] = [key for key, one in result["cases"].items() if not one["ok"]]
    if options.json:
        print(json.dumps(result))
    sys.exit(bool(result["missed"]))


# Steps


def measure(case: Case) -> dict[str, Any]:
    """Both runs on one cluster, in turns."""
    with tempfile.TemporaryDirectory() as scratch, Lab(case.cluster) as lab:
        turns = Path(scratch, "turns")
        turns.mkdir()
        cores = {machine.name: machine.cores() for machine in lab.machines}
        batch = len(cores) if case.spare else batch_for(case, sum(cores.values()), len(cores))
        crews = {}
        for way in WAYS:
            arguments = ["--way", way, "--turns", turns, "--slice-steps", case.slice_steps, "--batch", batch]
            arguments += ["--wait", case.step_ms / 1e3 if case.spare else 0.0]
            crews[way] = LabCrew(
                lab,
                Path(scratch, way),
                arguments,
                expected=len(cores),
                module="benchmarks.private",
                is_direct=way == "direct",
            )
        for crew in crews.values():
            for name, own in cores.items():
                crew.start(name, POTLUCK_SHARE=str(1 if case.spare else round(1000 * own)))
            crew.workers[next(iter(cores))].expect("ready", 120)
        crews["gates"].machines.settle()
        before = gate_cpu_s(Path(scratch, "gates"), list(cores))
        (turns / "0").touch()
        for crew in crews.values():
            wait_for_all(crew.workers.values(), _END_S)
        after = gate_cpu_s(Path(scratch, "gates"), list(cores))
        first = next(iter(cores))
        times = {way: json.loads(crews[way].result(first).read_text()) for way in WAYS}
    slices = {way: [statistics.median(one[SETTLING_STEPS:]) for one in times[way][1:]] for way in WAYS}
    ratio = statistics.median(gated / direct for gated, direct in zip(slices["gates"], slices["direct"], strict=True))
    num_steps = sum(map(len, times["gates"]))
    return {
        "ratio": round(ratio, 4),
        "direct_s": round(statistics.median(slices["direct"]), 5),
        "gates_s": round(statistics.median(slices["gates"]), 5),
        "batch": batch,
        "gate_cpu_ms": {name: round(1e3 * (after[name] - before[name]) / num_steps, 2) for name in cores},
        "bar": case.bar,
        "ok": ratio <= case.bar,
    }


def batch_for(case: Case, cores: float, num_machines: int) -> int:
    """A batch with which a step takes about the wanted time, where that is possible at all."""
    return max(num_machines, round((case.step_ms / 1e3 - FIXED_S) * cores / sample_s()))


def sample_s() -> float:
    """A sample's forward and backward pass on one thread of this computer."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model, seconds, probe = SimpleCNN(NUM_CLASSES, widths=WIDTHS), [], 32
    for _ in range(8):
        began = time.monotonic()
        cross_entropy(model(torch.randn(probe, 3, 32, 32)), torch.zeros(probe, dtype=torch.long)).backward()  # type: ignore[no-untyped-call]
        seconds.append(time.monotonic() - began)
    torch.set_num_threads(threads)
    return statistics.median(seconds) / probe


def gate_cpu_s(folder: Path, names: Sequence[str]) -> dict[str, float]:
    """Processor time so far of each machine's gate."""
    found = {}
    for name in names:
        socket = str(folder / "gates" / name / "gate")
        pids = subprocess.run(["pgrep", "-f", socket], capture_output=True, text=True, check=True).stdout.split()
        fields = Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()
        found[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def train(options: argparse.Namespace) -> None:
    """A worker of one of the two runs: its slices, each when the other run's is over."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    mine = WAYS.index(options.way)
    model = SimpleCNN(NUM_CLASSES, widths=WIDTHS)
    data = TensorDataset(torch.randn(KEPT_SAMPLES, 3, 32, 32), torch.randint(NUM_CLASSES, (KEPT_SAMPLES,)))
    slices: list[list[float]] = []
    with potluck.start("run", device="cpu", load_balance_policy="static", keep=read_names()) as run:
        prepared, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
        loader = run.loader(data, global_batch=options.batch)
        print("ready", flush=True)
        since = 0.0
        for _ in run.epochs(10_000, max_steps=NUM_SLICES * options.slice_steps):
            for batch, wanted in loader:
                if run.step % options.slice_steps == 0:
                    turn = 2 * len(slices) + mine
                    while not (options.turns / str(turn)).exists():
                        time.sleep(_TURN_S)
                    slices.append([])
                    since = time.perf_counter()
                if options.wait:
                    time.sleep(options.wait)
                run.backward(cross_entropy(prepared(batch), wanted))
                optimizer.step()
                optimizer.zero_grad()
                now = time.perf_counter()
                slices[-1].append(now - since)
                since = now
                if run.step % options.slice_steps == 0:
                    (options.turns / str(2 * len(slices) - 1 + mine)).touch()
    options.worker.write_text(json.dumps(slices))


def read_names() -> list[str]:
    """All machines take part, whatever is fastest."""
    return ["oak", "elm", "rosa", "lily", "fern", "ash", "bay"]


# All-reduces


def measure_reduce(cluster: str) -> dict[str, Any]:
    """Milliseconds of an all-reduce, direct and through gates in turns, and the gates' processor time."""
    with tempfile.TemporaryDirectory() as scratch, Lab(cluster) as lab:
        folder, machines = Path(scratch), LabMachines(lab)
        gates = LabGates(lab, folder, lighthouse_port=EXPOSED_PORT, pinned=machines.pinned)
        gates.start(*machines.names)
        workers = []
        for rank, name in enumerate(machines.names):
            wanted = {
                "rank": rank,
                "num_machines": len(machines.names),
                "store": lab.machines[0].address,
                "own": lab[name].address,
                "address": gates.address(name),
                "go": str(folder / "go"),
            }
            command = [sys.executable, "-m", "benchmarks.private", "--reduce", json.dumps(wanted)]
            workers.append(machines.start(name, command, gates.variables(name)))
        machines.let_go(workers, folder / "go")
        before = gate_cpu_s(folder, machines.names)
        wait_for_all(workers, _END_S)
        after = gate_cpu_s(folder, machines.names)
        found: dict[str, Any] = json.loads(workers[0].output.splitlines()[-1])
        found["gates' processor, s in all"] = {name: round(after[name] - before[name], 2) for name in machines.names}
        return found


def reduce(wanted: dict[str, Any]) -> None:
    """One of those that reduce: a group on the network and one through the gates, one after the other."""
    torch.set_num_threads(1)
    rank, num_machines = wanted["rank"], wanted["num_machines"]
    launch = read_launch()
    store = TCPStore(wanted["store"], STORE_PORT, is_master=rank == 0, wait_for_workers=False)
    address = wanted["address"]
    listening = Listening(address=address, gradient_address=address, gate=launch.gate, run=launch.gate_run)
    gated, line, _ = open_gloo(listening)
    gloo: Any = ProcessGroupGloo  # torch declares neither its options nor its exchanges
    groups = {}
    for way, device in (("direct", ProcessGroupGloo.create_device(hostname=wanted["own"])), ("gates", gated)):
        options = gloo._Options()
        options._devices = [device]
        groups[way] = gloo(PrefixStore(way, store), rank, num_machines, options)
    wait_for_go(Path(wanted["go"]))
    found = {}
    for size in SIZES_MIB:
        values = torch.ones(size << 18)
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(30 if size < 10 else 12):
            for way in WAYS:
                began = time.perf_counter()
                groups[way].allreduce([values]).wait()
                seconds[way].append(time.perf_counter() - began)
        medians = {way: statistics.median(times[2:]) for way, times in seconds.items()}
        found[f"{size} MiB"] = {way: round(1e3 * one, 2) for way, one in medians.items()}
    store.set(f"done/{rank}", "")
    if rank == 0:
        store.wait([f"done/{other}" for other in range(num_machines)])
    print(json.dumps(found), flush=True)
    if line is not None:
        line.close()


if __name__ == "__main__":
    main()
