"""Lab machines that meet: each with a home of its own, `potluck` commands on them, and what they left on disk."""

import json
import re
import sys
import time
from pathlib import Path

from lab import Lab
from lab.cluster_file import load_cluster
from potluck.events.log import read_records
from potluck.events.types import StepCommitted

ROOT = Path(__file__).parents[1]
POTLUCK = [sys.executable, "-m", "potluck"]
# Names that nobody resolves, and one's own name at 127.0.1.1: what a home network looks like.
MACHINES = ("rosa", "lily", "fern")
LAPTOPS = "machines:\n" + "".join(
    f"  - {{name: {name}, cores: 0.65, memory: 3G, link: 1gbit, resolves: false}}\n" for name in MACHINES
)
SMALL = ["--model-size", "tiny", "--num-samples", "640"]


class Gathering:
    """A lab of three laptops; rosa is the host."""

    def __init__(self, folder, cluster=LAPTOPS):
        self.folder = folder
        file = folder / "cluster.yaml"
        file.write_text(cluster)
        self.lab = Lab(load_cluster(file), name="meeting")
        self.line = ""

    def __enter__(self):
        self.lab.__enter__()
        return self

    def __exit__(self, *error):
        self.lab.__exit__(*error)

    def place(self, machine):
        place = self.folder / machine
        place.mkdir(exist_ok=True)
        return place

    def variables(self, machine):
        # pytest's own pythonpath does not reach other processes.
        path = f"{ROOT / 'src'}:{ROOT}"
        return {"POTLUCK_HOME": str(self.place(machine) / "home"), "PYTHONPATH": path, "COLUMNS": "200"}

    def start(self, machine, *arguments, env=None, under=()):
        variables = {**self.variables(machine), **(env or {})}
        command = [*under, *POTLUCK, *map(str, arguments)]
        return self.lab[machine].start(command, cwd=self.place(machine), env=variables)

    def run(self, machine, *arguments, timeout_s=60, **options):
        process = self.start(machine, *arguments, **options)
        return process.wait(timeout_s), process.output

    def host(self, *options, env=None):
        process = self.start("rosa", "host", *options, env=env)
        self.line = process.expect("potluck join p1-", 30).split()[2]
        return process

    def join(self, machine, *options, wait=True):
        process = self.start(machine, "join", self.line, *options)
        if wait:
            process.expect("waiting for work", 30)
        return process

    def join_all(self, *machines):
        """The agents of these machines: they join in this order, and get ready at the same time."""
        agents = {}
        for machine in machines:
            agents[machine] = self.join(machine, wait=False)
            agents[machine].expect(f" as {machine}", 30)
        for agent in agents.values():
            agent.expect("waiting for work", 30)
        return agents

    def status(self, machine="rosa"):
        code, output = self.run(machine, "status", "--json")
        assert code == 0, output
        return json.loads(output)

    def states(self):
        return {machine["machine"]: machine["state"] for machine in self.status()["machines"]}

    def ways(self):
        """How every two machines reach each other."""
        return {"-".join(sorted(link["machines"])): link["way"] for link in self.status()["links"]}

    def home_run(self, run):
        """The run's folder on the host."""
        return self.place("rosa") / "experiments" / run

    def local_run(self, machine, run):
        return self.home_run(run) if machine == "rosa" else self.place(machine) / "home" / "runs" / run

    def steps(self, run, machine=None):
        """Committed steps in the host's files, all or one machine's, in the order of their times."""
        return [
            record
            for file in self.home_run(run).glob(f"events/{machine or '*'}-*.jsonl")
            for record in read_records(file)
            if isinstance(record.event, StepCommitted)
        ]

    def wait_for_step(self, run, step, machine=None, timeout_s=60):
        self.wait_until(
            lambda: any(r.event.step >= step for r in self.steps(run, machine)), f"no step {step}", timeout_s
        )

    def last_step(self, run, machine=None):
        return max((record.event.step for record in self.steps(run, machine)), default=0)

    def wait_until(self, condition, complaint, timeout_s=60):
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, complaint
            time.sleep(0.1)

    def printed(self, process):
        return re.sub(r"p1-\S+", "p1-...", process.output)


def samples_by_step(records):
    """How many samples of each step's global batch all workers together took, in the formation that committed it."""
    found = {}
    for record in records:
        event = record.event
        found.setdefault((event.step, event.formation), []).append(event.own_samples)
    return {key: sum(samples) for key, samples in found.items()}
