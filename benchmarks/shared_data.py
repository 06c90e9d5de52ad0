"""A folder of data that one machine has and two others get while they train, in the lab.

    python -m benchmarks.shared_data --gigabytes 2 --kind files --rate 1gbit --json

Of `potluck run --data`: seconds to the first step and until both machines have everything, against what the link
allows. In the same run one machine is killed in the middle of the transfer and joins again: the bytes that it received
altogether, against the folder's size. Then one byte of a file that has arrived is changed, and a second run started:
the bytes that it transfers. The parameters at the end are compared with those of one process that had the folder.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.support.gathering import Gathering
from benchmarks.support.lab_error import exit_on_lab_error
from benchmarks.support.lab_machines import ROOT
from benchmarks.support.shared_data_script import SAMPLE_BYTES
from lab import Process
from potluck.core.quantities import rate_bytes_per_s

RUN = "train"
GETTING = ("fern", "lily")
SCRIPT = ROOT / "benchmarks" / "support" / "shared_data_script.py"
MOST_S = 900


def main() -> None:
    """Measure, print, and with --json end with one line for scripts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--kind", choices=("files", "one"), default="files", help="many files of 100 kB, or one file")
    parser.add_argument("--rate", default="1gbit", help="of every machine's link")
    parser.add_argument("--kill-at", type=float, default=0.3, help="how much of the data fern has when it is killed")
    parser.add_argument(
        "--joined-for", type=float, default=20.0, help="seconds before the run; half a core imports torch for eight"
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    options = parser.parse_args()
    with exit_on_lab_error(), tempfile.TemporaryDirectory() as scratch:
        figures = measure(Path(scratch), options)
    print(
        f"{options.kind}, {figures['gigabytes']:.2f} GB at {options.rate}: first step after "
        f"{figures['first_step_s']:.1f} s, everything after {figures['all_s']:.1f} s "
        f"(the link alone: {figures['link_s']:.1f} s)\n"
        f"killed and back: fern received {figures['received_ratio']:.2f} of the folder altogether\n"
        f"second run after one changed byte: {figures['second_bytes'] / 1e6:.1f} MB to lily, "
        f"{figures['third_bytes'] / 1e6:.1f} MB to fern, first step after {figures['second_first_step_s']:.1f} s\n"
        f"parameters against one process: {figures['difference']:.1e}"
    )
    if options.json:
        print(json.dumps({"benchmark": "shared_data", "kind": options.kind, "rate": options.rate, **figures}))


def measure(scratch: Path, options: argparse.Namespace) -> dict[str, float]:
    """Both runs, and the same training by one process."""
    samples = make_samples(scratch / "samples", int(options.gigabytes * 1e9), options.kind)
    machines = "".join(
        f"  - {{name: {name}, cores: {cores}, memory: 6G, resolves: false, link: {options.rate}}}\n"
        for name, cores in (("rosa", 1.0), *((name, 0.5) for name in GETTING))
    )
    with Gathering(scratch, f"machines:\n{machines}") as lab:
        lab.host().expect("rosa is here", 60)
        agents = lab.join_all(*GETTING)
        time.sleep(options.joined_for)
        shutil.copy(SCRIPT, lab.place("rosa") / f"{RUN}.py")
        found = first_run(lab, agents, samples, options)
        changed = next((lab.place("lily") / "home" / "data").glob("*/seen/samples/**/*.bin"))
        with changed.open("r+b") as file:
            byte = file.read(1)
            file.seek(0)
            file.write(bytes([byte[0] ^ 1]))
        found |= second_run(lab, samples)
        alone = ["run", "--solo", "--data", samples, f"{RUN}.py", "--save", scratch / "alone"]
        code, output = lab.run("rosa", *alone, timeout_s=MOST_S)
        assert code == 0, output
        found["difference"] = largest_difference(scratch)
    size = sum(file.stat().st_size for file in samples.rglob("*.bin"))
    rate = rate_bytes_per_s(options.rate)
    return {"gigabytes": size / 1e9, "link_s": size / rate, **found, "received_ratio": found["received_bytes"] / size}


def make_samples(folder: Path, size: int, kind: str) -> Path:
    """A folder of random bytes, in files of a sample each or in one file."""
    number = size // SAMPLE_BYTES
    noise = os.urandom(SAMPLE_BYTES + number)
    folder.mkdir()
    if kind == "one":
        with (folder / "rows.bin").open("wb") as file:
            for index in range(number):
                file.write(noise[index : index + SAMPLE_BYTES])
        return folder
    for index in range(number):
        place = folder / f"{index // 500:04}"
        place.mkdir(exist_ok=True)
        (place / f"{index:06}.bin").write_bytes(noise[index : index + SAMPLE_BYTES])
    return folder


def first_run(
    lab: Gathering, agents: dict[str, Process], samples: Path, options: argparse.Namespace
) -> dict[str, float]:
    """The run in which the data comes; fern is killed in the middle, and joins again."""
    before = {name: lab.lab[name].usage().received_bytes for name in GETTING}
    began = time.monotonic()
    stay = lab.folder / "data-is-here"
    run = start(lab, samples, "first", "--stay", stay)
    lab.wait_for_step("first", 1, timeout_s=MOST_S)
    found = {"first_step_s": time.monotonic() - began}
    wait_for_data(lab, "first", run, "fern", options.kill_at)
    lab.lab["fern"].kill()
    agents["fern"] = lab.join("fern", wait=False)
    wait_for_data(lab, "first", run, "lily", 1.0)
    wait_for_data(lab, "first", run, "fern", 1.0)
    found["all_s"] = time.monotonic() - began
    stay.touch()
    found["received_bytes"] = lab.lab["fern"].usage().received_bytes - before["fern"]
    assert run.wait(MOST_S) == 0, run.output
    return found


def second_run(lab: Gathering, samples: Path) -> dict[str, float]:
    """A run after the data has come: lily fetches again what was changed there, fern nothing."""
    before = {name: lab.lab[name].usage().received_bytes for name in GETTING}
    began = time.monotonic()
    run = start(lab, samples, "second")
    lab.wait_for_step("second", 1, timeout_s=MOST_S)
    first = time.monotonic() - began
    wait_for_data(lab, "second", run, "lily", 1.0)
    received = {name: lab.lab[name].usage().received_bytes - before[name] for name in GETTING}
    assert run.wait(MOST_S) == 0, run.output
    return {
        "second_bytes": float(received["lily"]),
        "third_bytes": float(received["fern"]),
        "second_first_step_s": first,
    }


def start(lab: Gathering, samples: Path, name: str, *more: object) -> Process:
    """Start the training; all machines take part, however small the network is."""
    keep = [word for machine in ("rosa", *GETTING) for word in ("--keep", machine)]
    arguments = [
        "run",
        "--experiment-name",
        name,
        *keep,
        "--data",
        samples,
        f"{RUN}.py",
        "--save",
        lab.folder / name,
        *more,
    ]
    return lab.start("rosa", *arguments, env={"POTLUCK_TUNING": "0"})


def wait_for_data(lab: Gathering, run: str, process: Process, machine: str, share: float) -> None:
    """Until a machine has this share of the data, or the run has ended."""
    deadline = time.monotonic() + MOST_S
    while time.monotonic() < deadline:
        shown: dict[str, Any] = next(one for one in lab.status()["runs"] if one["run"] == run)
        own = shown["data"]["machines"].get(machine)
        if shown["state"] in ("failed", "stopped"):
            sys.exit(f"the run has {shown['state']}:\n{process.output}")
        if shown["state"] == "finished" or (own and own["have_bytes"] >= share * own["total_bytes"]):
            return
        time.sleep(0.3)
    sys.exit(f"{machine} has not got the data:\n{process.output}")


def largest_difference(folder: Path) -> float:
    """Of any parameter on any machine after both runs, to one process that had the folder."""
    alone = torch.load(folder / "alone" / "rosa.pt")
    saved = [*(folder / "first").glob("*.pt"), *(folder / "second").glob("*.pt")]
    if {file.stem for file in saved} < {"rosa", *GETTING}:
        sys.exit(f"not all machines have saved what they trained: {saved}")
    return max(float((torch.load(file) - alone).abs().max()) for file in saved)


if __name__ == "__main__":
    main()
