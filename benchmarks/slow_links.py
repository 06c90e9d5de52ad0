"""What each way to exchange brings on slow links, and what it costs in loss: exact, int8, int4, rounds, islands.

    python -m benchmarks.slow_links --cluster wifi --json
    python -m benchmarks.slow_links --cluster dsl --r 2 --modes exact int4 --speed-only --json

The byte model (benchmarks/support/byte_model.py) is made as large as r says: r = seconds of an fp32 ring on the slowest
link / seconds of a step's compute on all machines together, both from measured speeds. Speed: `potluck run` on machines
of the lab that have joined a host, all kept, over some tens of seconds after the first steps; rounds are timed after a
short warm-up. Efficiency is a part of the sum of the machines' solo speeds, which are measured before and after each
run; prediction_error is how many samples/s too many the run's own plans promised, as a part. Loss: whole runs with
fixed shares on loopback, the same samples in every mode; loss_ratio is the mean over the seeds of a mode's held-out
loss against that of exact. Figures are by r: figures["int4"]["efficiency"]["2"]. A mode that the program refuses has
its error line under "refused".
"""

import argparse
import json
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.support.byte_model import BATCH, num_parameters
from benchmarks.support.lab_error import exit_on_lab_error
from benchmarks.support.slow_link_loss import measure_loss
from benchmarks.support.slow_link_speed import ROUNDS, WIRE, Model, SpeedLab, homes, steps_of_a_round
from lab.cluster import Cluster
from lab.cluster_file import load_cluster

MODES = ("exact", "int8", "int4", "rounds", "islands")
RATIOS = (0.5, 2.0, 10.0, 50.0)
KEYS = ("samples_per_s", "efficiency", "prediction_error", "held_out_loss", "loss_ratio")


def main() -> None:
    """Measure, print every figure when it is there, and end with one JSON line if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="wifi", help="a lab cluster or a cluster file: wifi, dsl, uplink, crawl")
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(WIRE))
    parser.add_argument("--r", nargs="+", type=float, default=list(RATIOS))
    parser.add_argument("--rows", type=int, help="this size of the table in place of one for each r")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=BATCH, help="global batch")
    parser.add_argument("--steps", type=int, default=600, help="of every run for the loss")
    parser.add_argument("--round-steps", type=int, help="in runs for the loss; by default as for that r")
    parser.add_argument("--window", type=float, default=30.0, help="seconds of every run for the speed, about")
    parser.add_argument("--solo-seconds", type=float, default=6.0)
    parser.add_argument("--speed-only", action="store_true")
    parser.add_argument("--loss-only", action="store_true")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    options = parser.parse_args()
    with exit_on_lab_error():
        figures = measure(options)
    if options.json:
        print(json.dumps(figures))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Sizes and speeds in the lab, then losses on loopback."""
    figures: dict[str, Any] = {"benchmark": "slow_links", "cluster": options.cluster, "global_batch": options.batch}
    figures["models"] = {}
    figures |= {mode: {key: {} for key in (*KEYS, "refused")} for mode in options.modes}
    if options.rows is None or not options.loss_only:
        with tempfile.TemporaryDirectory() as scratch, SpeedLab(options.cluster, Path(scratch)) as lab:
            for r in options.r if options.rows is None else [None]:
                measure_speed(lab, r, options, figures)
    else:
        figures["models"]["rows"] = {"rows": options.rows, "parameters": num_parameters(options.rows)}
    if not options.speed_only:
        figures |= {"steps": options.steps, "seeds": options.seeds}
        cluster = load_cluster(options.cluster)
        for key, model in figures["models"].items():
            if options.round_steps is not None:
                model["round_steps"] = options.round_steps
            measure_losses(key, model, cluster, options, figures)
    return figures


def measure_speed(lab: SpeedLab, r: float | None, options: argparse.Namespace, figures: dict[str, Any]) -> None:
    """One size of the model: its r, and the speed of every mode."""
    if r is None:
        models = [lab.model(options.rows, options.batch, options.solo_seconds)]
    else:
        models = [lab.sized(r, options.batch, options.solo_seconds)]
    key = "rows" if r is None else f"{r:g}"
    rows = models[0].rows
    told = {"rows": rows, "parameters": num_parameters(rows), "solo_samples_per_s": rounded(models[0])}
    if r is not None:
        told["round_steps"] = steps_of_a_round(models[0].r, options.batch)
    figures["models"][key] = told
    print(f"r {key}: {told['parameters']:,} parameters, r is {models[0].r:.2f}, alone {told['solo_samples_per_s']}")
    if options.loss_only:
        told["r"] = round(models[0].r, 3)
        return
    speeds = {}
    for mode in options.modes:
        speeds[mode] = speed = lab.speed(mode, models[-1], options.batch, options.window)
        models.append(lab.model(rows, options.batch, options.solo_seconds))
        if speed.samples_per_s is None:
            figures[mode]["refused"][key] = speed.refused
            print(f"r {key}, {mode}: refused: {speed.refused}", flush=True)
        else:
            steps = f"{speed.num_steps} steps in {speed.seconds} s"
            print(f"r {key}, {mode}: {speed.samples_per_s:.1f} samples/s, {steps}", flush=True)
    total = statistics.median(one.sum_of_solo for one in models)
    told |= {"sum_of_solo_samples_per_s": round(total, 1), "r": round(statistics.median(one.r for one in models), 3)}
    for (mode, speed), (before, after) in zip(speeds.items(), pairwise(models), strict=True):
        if speed.samples_per_s is not None:
            total = (before.sum_of_solo + after.sum_of_solo) / 2
            figures[mode]["samples_per_s"][key] = round(speed.samples_per_s, 2)
            figures[mode]["efficiency"][key] = round(speed.samples_per_s / total, 3)
            figures[mode]["prediction_error"][key] = speed.prediction_error and round(speed.prediction_error, 3)
            off = "" if speed.prediction_error is None else f", plans off by {100 * speed.prediction_error:.1f} %"
            print(f"r {key}, {mode}: {speed.samples_per_s / total:.3f} of the sum of solo speeds {total:.1f}{off}")


def measure_losses(
    key: str, model: dict[str, Any], cluster: Cluster, options: argparse.Namespace, figures: dict[str, Any]
) -> None:
    """One size of the model: the held-out losses of every mode and seed, and their ratios to exact's."""
    modes = list(dict.fromkeys(["exact", *options.modes]))
    shares = {machine.name: round(100 * machine.cores) for machine in cluster.machines}
    found: dict[str, list[float]] = {mode: [] for mode in modes}
    for seed in range(options.seeds):
        for mode in modes:
            if mode in options.modes and key in figures[mode]["refused"]:
                continue
            amount = {"batch": options.batch, "steps": options.steps, "seed": seed}
            amount["round_steps"] = model.get("round_steps") if mode in ROUNDS else None
            loss = measure_loss(mode, model["rows"], shares=shares, islands=homes(cluster), **amount)
            if loss.held_out_loss is None:
                print(f"r {key}, {mode}, seed {seed}: refused: {loss.refused}", flush=True)
                if mode in options.modes:
                    figures[mode]["refused"][key] = loss.refused
                continue
            found[mode].append(loss.held_out_loss)
            print(f"r {key}, {mode}, seed {seed}: held-out loss {loss.held_out_loss:.4f}", flush=True)
    for mode in options.modes:
        if len(found[mode]) == len(found["exact"]) > 0:
            ratios = [ours / exact for ours, exact in zip(found[mode], found["exact"], strict=True)]
            figures[mode]["held_out_loss"][key] = round(statistics.fmean(found[mode]), 4)
            figures[mode]["loss_ratio"][key] = round(statistics.fmean(ratios), 4)
            figures[mode].setdefault("held_out_losses", {})[key] = found[mode]
            figures[mode].setdefault("loss_ratios", {})[key] = [round(ratio, 4) for ratio in ratios]


def rounded(model: Model) -> dict[str, float]:
    """Solo speeds for people."""
    return {name: round(speed, 1) for name, speed in model.solo.items()}


if __name__ == "__main__":
    main()
