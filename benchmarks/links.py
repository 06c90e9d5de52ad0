"""The links of a lab cluster as Potluck's own sweep sees them: every pair, and the ring of all.

python -m benchmarks.links --cluster wifi --json
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.distributed import ProcessGroupGloo, TCPStore

from benchmarks.crew import START_CORES, let_go
from benchmarks.ddp_baseline import wait_for_go
from lab import Lab, LabError
from potluck.engine.addresses import address_towards
from potluck.measuring.link_sweep import sweep_links
from potluck.planning.costs import LinkProfile
from potluck.planning.explain import rate_text, seconds_text

ROOT = Path(__file__).parents[1]
PORT = 29520
WAIT_S = 180.0


def work(go: Path) -> None:
    """One worker; the first holds the store."""
    torch.set_num_threads(1)
    names, rank = os.environ["NAMES"].split(), int(os.environ["RANK"])
    device = ProcessGroupGloo.create_device(hostname=address_towards(os.environ["MASTER_ADDR"]))
    wait_for_go(go)
    store = TCPStore(os.environ["MASTER_ADDR"], PORT, is_master=rank == 0, wait_for_workers=False)
    began_s = time.perf_counter()
    found = sweep_links(store, rank, names, device)
    if rank == 0:
        links = {"-".join(pair): _data(link) for pair, link in found.pairs.items()}
        each = {name: _data(link) for name, link in found.of_each().items()}
        took_s = time.perf_counter() - began_s
        print(json.dumps({"ring": _data(found.ring), "pairs": links, "machines": each, "sweep_s": took_s}))
    # The store goes with its process: the others may still be reading.
    store.set(f"done/{rank}", "")
    if rank == 0:
        store.wait([f"done/{other}" for other in range(len(names))])


def _data(link: LinkProfile) -> dict[str, float]:
    return {"latency_s": link.latency_s, "bandwidth_bytes_per_s": link.bandwidth_bytes_per_s, "error": link.error}


def measure(cluster: str) -> dict[str, object]:
    """Sweep a lab cluster, at its declared cores."""
    with tempfile.TemporaryDirectory() as scratch, Lab(cluster) as lab:
        go = Path(scratch, "go")
        declared = {machine.name: machine.cores() for machine in lab.machines}
        workers = {}
        for rank, machine in enumerate(lab.machines):
            machine.slow(START_CORES)
            variables = {"RANK": str(rank), "MASTER_ADDR": lab.machines[0].address, "NAMES": " ".join(declared)}
            command = [sys.executable, "-m", "benchmarks.links", "--worker", "--go", str(go)]
            workers[machine.name] = machine.start(command, cwd=ROOT, env=variables)
        let_go(lab, declared, workers, go)
        for worker in workers.values():
            if worker.wait(WAIT_S):
                raise LabError(f"the worker on {worker.machine} failed:\n{worker.output}", fix="see its traceback")
        result = next(line for line in workers[lab.machines[0].name].lines() if line.startswith("{"))
        return {"benchmark": "links", "cluster": cluster, **json.loads(result)}


def main() -> None:
    """Measure, print a table, and with --json one line for scripts at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", default="wifi", help="a shipped lab cluster or a cluster file")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--go", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.go)
        return
    try:
        figures = measure(options.cluster)
    except LabError as error:
        sys.exit(f"error: {error}")
    for name, link in {**figures["pairs"], "ring": figures["ring"]}.items():
        print(f"{name:>14} {rate_text(link['bandwidth_bytes_per_s']):>14}, {seconds_text(link['latency_s'])} a hop")
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
