"""The links of a lab cluster as Potluck's own sweep sees them: every pair, and the ring of all.

python -m benchmarks.links --cluster wifi --json
"""

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import torch
from torch.distributed import ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]

from benchmarks.support.lab_error import exit_on_lab_error
from benchmarks.support.lab_machines import LabMachines, wait_for_all, wait_for_go
from lab import Lab
from potluck.engine.group.addresses import address_towards
from potluck.measuring.link_sweep import sweep_links
from potluck.planning.costs import LinkProfile
from potluck.planning.explain import rate_text, seconds_text

PORT = 29520
WAIT_S = 180.0


@dataclass(frozen=True)
class Swept:
    """What the sweep of a cluster found."""

    ring: LinkProfile
    pairs: dict[str, LinkProfile]
    machines: dict[str, LinkProfile]
    sweep_s: float


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
        swept = Swept(
            ring=found.ring,
            pairs={"-".join(pair): link for pair, link in found.pairs.items()},
            machines=dict(found.of_each()),
            sweep_s=time.perf_counter() - began_s,
        )
        print(json.dumps(asdict(swept)))
    # The store goes with its process: the others may still be reading.
    store.set(f"done/{rank}", "")
    if rank == 0:
        store.wait([f"done/{other}" for other in range(len(names))])


def measure(cluster: str) -> Swept:
    """Sweep a lab cluster, at its declared cores."""
    with tempfile.TemporaryDirectory() as scratch, Lab(cluster) as lab:
        go = Path(scratch, "go")
        machines = LabMachines(lab)
        command = [sys.executable, "-m", "benchmarks.links", "--worker", "--go", str(go)]
        told = {"MASTER_ADDR": lab.machines[0].address, "NAMES": " ".join(machines.names)}
        workers = [
            machines.start(name, command, {**told, "RANK": str(rank)}) for rank, name in enumerate(machines.names)
        ]
        machines.let_go(workers, go)
        wait_for_all(workers, WAIT_S)
        line = next(line for line in workers[0].lines() if line.startswith("{"))
        return msgspec.json.decode(line, type=Swept)


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
    with exit_on_lab_error():
        swept = measure(options.cluster)
    for name, link in {**swept.pairs, "ring": swept.ring}.items():
        print(f"{name:>14} {rate_text(link.bandwidth_bytes_per_s):>14}, {seconds_text(link.latency_s)} a hop")
    if options.json:
        print(json.dumps({"benchmark": "links", "cluster": options.cluster, **asdict(swept)}))


if __name__ == "__main__":
    main()
