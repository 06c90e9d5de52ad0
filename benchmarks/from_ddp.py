"""A stock DDP script on three laptops: started by hand, by `potluck run --plain`, and with five lines of Potluck.

    python -m benchmarks.from_ddp --json

On the lab's cluster `laptops` (0.8, 0.4 and 0.2 of a core, a gigabit switch) the three ways take turns. By hand means
one process on every machine with RANK, WORLD_SIZE, MASTER_ADDR and GLOO_SOCKET_IFNAME, in the open; the other two go
through the gates. A run's samples/s are the median of its epochs after the first two, as the script prints them.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.support.gathering import Gathering
from benchmarks.support.lab_machines import ROOT, START_CORES, LabMachines

STOCK, OURS = "ddp_script.py", "ddp_script_on_potluck.py"
WAYS = ("by_hand", "plain", "potluck")
SKIPPED = 2
_EPOCH = re.compile(r"epoch (\d+): loss [\d.]+, ([\d,]+) samples/s")


def main() -> None:
    """Measure, print the output of the last round, and end with one JSON line if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    printed: dict[str, str] = {}
    cluster = (ROOT / "lab" / "clusters" / "laptops.yaml").read_text()
    with tempfile.TemporaryDirectory() as scratch, Gathering(Path(scratch), cluster) as gathering:
        machines = gather(gathering)
        for number in range(options.rounds):
            for way in WAYS if number % 2 == 0 else WAYS[::-1]:
                printed[way] = run_once(gathering, machines, way, options.epochs)
                found[way].append(speed(printed[way]))
                print(f"{way}: {found[way][-1]:,.0f} samples/s", flush=True)
    for way, text in printed.items():
        print(f"--- {way}\n{text}")
    if options.json:
        print(json.dumps({"samples_per_s": found, "median": {way: statistics.median(found[way]) for way in WAYS}}))


def gather(gathering: Gathering) -> LabMachines:
    """rosa hosts, the others join; the scripts lie on rosa, and one on each machine for the start by hand."""
    machines = LabMachines(gathering.lab)
    gathering.pinned = machines.pinned
    for machine in gathering.lab.machines:
        machine.slow(START_CORES)
    gathering.host().expect("rosa is here", 60)
    gathering.join_all("lily", "fern")
    time.sleep(5.0)
    for name in machines.names:
        job = gathering.place(name) / "job"
        job.mkdir()
        for script in (STOCK, OURS):
            (job / script).write_text((ROOT / "examples" / script).read_text())
    machines.settle()
    return machines


def run_once(gathering: Gathering, machines: LabMachines, way: str, epochs: int) -> str:
    """What one run printed on rosa."""
    more = ["--epochs", str(epochs)]
    if way == "by_hand":
        return by_hand(gathering, machines, more)
    which = ["--plain", f"job/{STOCK}"] if way == "plain" else [f"job/{OURS}"]
    process = gathering.start("rosa", "run", *which, *more)
    if process.wait(300):
        sys.exit(process.output)
    return process.output


def by_hand(gathering: Gathering, machines: LabMachines, more: list[str]) -> str:
    """One process on every machine, as a user would start it without Potluck."""
    address = gathering.lab["rosa"].address
    processes = []
    for rank, name in enumerate(machines.names):
        variables = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(len(machines.names))}
        variables |= {"MASTER_ADDR": address, "MASTER_PORT": "29600", "GLOO_SOCKET_IFNAME": "eth0"}
        command = [sys.executable, str(gathering.place(name) / "job" / STOCK), *more]
        processes.append(machines.start(name, command, variables))
    processes[0].expect("epoch 1:", 120)
    machines.settle()
    for process in processes:
        if process.wait(300):
            sys.exit(process.output)
    return processes[0].output


def speed(printed: str) -> float:
    """The median samples/s of a run's epochs after the first ones."""
    return statistics.median(
        float(rate.replace(",", "")) for epoch, rate in _EPOCH.findall(printed) if int(epoch) > SKIPPED
    )


if __name__ == "__main__":
    main()
