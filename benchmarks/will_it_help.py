"""How well `potluck plan --add` foretells a machine that nobody has measured, in the lab.

    python -m benchmarks.will_it_help --json

One machine of `mixed` is left out. The others are measured and make a run. Then `potluck plan --add` is asked what the
missing one would bring, told only how many cores it has and how fast its link is: its speed follows from the ratio to
the measured machines. Then it is there, and the same run is made with all. The error is that of the samples/s.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import prediction
from benchmarks.support.lab_error import exit_on_lab_error
from benchmarks.support.lab_machines import LabMachines
from lab import Lab

BAR = 0.15


def main() -> None:
    """Measure, print, and with --json end with one line for scripts; exit 1 where the error is above the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="mixed", help="a shipped lab cluster or a cluster file")
    parser.add_argument("--left-out", default="jade", help="the machine that is not there at first")
    parser.add_argument("--batch", type=int, default=256, help="global batch")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    options = parser.parse_args()
    with exit_on_lab_error():
        figures = measure(options)
    print(
        f"with {options.left_out}: predicted {figures['predicted_samples_per_s']:.1f} samples/s (between "
        f"{figures['predicted_low']:.1f} and {figures['predicted_high']:.1f}), measured "
        f"{figures['measured_samples_per_s']:.1f}, off by {100 * figures['error']:.1f} % (bar {100 * BAR:.0f} %); "
        f"without it measured {figures['measured_without']:.1f}"
    )
    if options.json:
        print(json.dumps({"benchmark": "will_it_help", "cluster": options.cluster, **figures}))
    sys.exit(figures["error"] > BAR)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the others, ask, and then let the missing machine come."""
    workload = prediction.Workload("simple_cnn", "base", options.batch, options.steps)
    with tempfile.TemporaryDirectory() as scratch, Lab(options.cluster) as lab:
        machines = LabMachines(lab)
        everyone = machines.names
        homes = {name: Path(scratch, f"home-{name}") for name in everyone}
        machines.names = [name for name in everyone if name != options.left_out]
        there = {name: homes[name] for name in machines.names}
        prediction.profile_all(machines, there, workload)
        kept = [option for name in machines.names for option in ("--keep", name)]
        prediction.train(machines, there, Path(scratch, "without"), workload, kept)
        without = prediction.look_at(Path(scratch, "without"), machines.names, options.batch)
        wish = f"{options.left_out}={machines.cores[options.left_out]:g}-core CPU"
        kept += ["--keep", options.left_out]
        predicted = prediction.plan(there, workload, ["--add", wish, *kept])
        machines.names = everyone
        prediction.train(machines, homes, Path(scratch, "with"), workload, kept)
        seen = prediction.look_at(Path(scratch, "with"), everyone, options.batch)
    return {
        "left_out": options.left_out,
        "asked": wish,
        "predicted_samples_per_s": predicted["samples_per_s"],
        "predicted_low": predicted["samples_per_s_low"],
        "predicted_high": predicted["samples_per_s_high"],
        "measured_samples_per_s": seen.samples_per_s,
        "measured_without": without.samples_per_s,
        "error": abs(predicted["samples_per_s"] / seen.samples_per_s - 1),
    }


if __name__ == "__main__":
    main()
