"""What grows with the number of machines, on this computer: planning, reading a run, and a ring of Gloo workers.

    python -m benchmarks.many_machines --machines 10 100 1000 10000 --json

Planning: seconds of a group's first plan, and of one check of the plan, as every worker of a group does it. Reading: a
simulated run that writes an event file for each of up to 1,000 machines, read as `potluck report` and the dashboard
read it, and the report made of it. Ring: threads with a Gloo group each, on loopback: seconds until all are connected,
and of an all-reduce of 1.6 MB; so many threads on few processors share them, which real machines do not.
"""

import argparse
import json
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from potluck.core.run_folder import RunFolder
from potluck.events.types import TrainingBegan
from potluck.measuring.sources import exchange_of
from potluck.planning.cluster import Cluster, Worker
from potluck.planning.costs import ComputeProfile, LinkProfile
from potluck.planning.replanning.cost_report import CostReport
from potluck.planning.replanning.replanner import Replanner
from potluck.planning.replanning.setting import GroupSetting, WorkerIntroduction
from potluck.report.story import tell
from potluck.report.view import read_run
from potluck.simulate.scenario import Scenario, WantedRun
from potluck.simulate.simulation import Simulation
from potluck.simulate.writing import RunWriter, rows_of

GRADIENT_BYTES = 1_600_000
STEPS = 100
MOST_FILES, MOST_RING = 1000, 128
LINK = LinkProfile(latency_s=1e-4, bandwidth_bytes_per_s=1.25e8)
PER_SAMPLE_S = (0.001, 0.002, 0.004, 0.01)


def main() -> None:
    """Measure every size, print, and with --json end with one line for scripts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", nargs="+", type=int, default=[10, 100, 1000, 10_000])
    parser.add_argument("--ring", nargs="+", type=int, default=[2, 8, 32, 128])
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for size in options.machines:
        rows.append({"machines": size, **planning(size), **(reading(size) if size <= MOST_FILES else {})})
        print(rows[-1], flush=True)
    rings = [ring(size) for size in options.ring if size <= MOST_RING]
    for row in rings:
        print(row, flush=True)
    if options.json:
        print(json.dumps({"benchmark": "many_machines", "rows": rows, "rings": rings}))


def cluster_of(size: int) -> Cluster:
    """So many machines of four kinds."""
    workers = tuple(
        Worker(
            name=f"m{number:05d}-0",
            machine=f"m{number:05d}",
            compute=ComputeProfile(fixed_s=0.01, per_sample_s=PER_SAMPLE_S[number % 4], spread=0.05),
        )
        for number in range(size)
    )
    return Cluster(workers=workers, links={one.machine: LINK for one in workers}, exchange=exchange_of(GRADIENT_BYTES))


def planning(size: int) -> dict[str, float]:
    """The first plan of a group, and a later check."""
    costs = [CostReport.of(one.compute, 64, 0.0) for one in cluster_of(size).workers]
    told = [WorkerIntroduction(cost=cost, link=LINK, last_step=1000) for cost in costs]
    names = [(f"m{number:05d}-0", f"m{number:05d}") for number in range(size)]
    began = time.perf_counter()
    setting = GroupSetting.of(names, told, 64 * size, exchange_of(GRADIENT_BYTES))
    replanner, _ = Replanner().formed(setting, 0)
    formed_s = time.perf_counter() - began
    waited = [cost._replace(exchange_wait_s=0.05) for cost in costs]
    for step in range(1, 3):
        replanner, _ = replanner.committed(waited, step)
    began = time.perf_counter()
    replanner.committed(waited, 3)
    return {"first_plan_s": round(formed_s, 4), "check_s": round(time.perf_counter() - began, 4)}


def reading(size: int) -> dict[str, float]:
    """A run whose machines write a file each."""
    cluster = cluster_of(size)
    run = WantedRun(batch=64 * size, num_steps=STEPS, keep=cluster.machines)
    with tempfile.TemporaryDirectory() as scratch:
        folder = RunFolder(Path(scratch, "run"))
        folder.path.mkdir()
        folder.settings_file.write_text("simulated: true\n")
        writer = RunWriter(folder, cluster, rows_of(cluster, {}, most=size), time.time())
        writer.begin(
            "run",
            TrainingBegan(num_samples=1, global_batch=run.batch, steps_per_epoch=STEPS, num_epochs=1, last_step=STEPS),
        )
        figures = Simulation(Scenario(cluster=cluster, wanted=run), writer).run()
        writer.end(figures.num_steps, figures.seconds, "")
        num_bytes = sum(file.stat().st_size for file in folder.event_files())
        began = time.perf_counter()
        view = read_run(folder)
        read_s = time.perf_counter() - began
        began = time.perf_counter()
        tell(view)
        told_s = time.perf_counter() - began
        began = time.perf_counter()
        view.refresh()
        refresh_s = time.perf_counter() - began
    return {
        "events": view.merge.num_events,
        "event_mb": round(num_bytes / 1e6, 1),
        "read_s": round(read_s, 2),
        "report_s": round(told_s, 2),
        "refresh_s": round(refresh_s, 3),
    }


def ring(size: int) -> dict[str, float]:
    """A Gloo group of threads."""
    import torch  # noqa: PLC0415  planning and reading need none
    from torch.distributed import HashStore, ProcessGroupGloo  # type: ignore[attr-defined]  # noqa: PLC0415

    torch.set_num_threads(1)
    store, formed, took = HashStore(), [0.0] * size, [0.0] * size

    def member(rank: int) -> None:
        began = time.perf_counter()
        group: Any = ProcessGroupGloo(store, rank, size, timedelta(seconds=120))
        formed[rank] = time.perf_counter() - began
        values = torch.ones(GRADIENT_BYTES // 4)
        group.allreduce([values]).wait()
        began = time.perf_counter()
        for _ in range(3):
            group.allreduce([values]).wait()
        took[rank] = (time.perf_counter() - began) / 3

    threads = [threading.Thread(target=member, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"workers": size, "connect_s": round(max(formed), 3), "all_reduce_s": round(max(took), 4)}


if __name__ == "__main__":
    main()
