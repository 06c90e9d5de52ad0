"""Somebody on the network who is no member: what they can learn, take or disturb. Every attack must fail.

    python -m benchmarks.outsider --json

A lab of four machines: rosa hosts and trains with lily, ivy has joined but is not in the run, and fern, which has
not joined, attacks. The attacker is told everything but secrets: addresses, ports, names, the run's settings. At the
end the run's parameters must be the same bits as those of a run without attacks.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from benchmarks.service_siege import ServiceSiege
from benchmarks.support.gathering import POTLUCK, Gathering
from benchmarks.support.lab_machines import ROOT
from benchmarks.support.tcpdump_recording import read_sent
from lab import Process
from potluck.core.atomic import write_secret
from potluck.gates.entrance import GREETING
from potluck.gates.identity import make_certificate

CLUSTER = """
machines:
  - {name: rosa, cores: 0.6, memory: 3G, link: 1gbit, resolves: false}
  - {name: lily, cores: 0.6, memory: 3G, link: 1gbit, resolves: false}
  - {name: ivy, cores: 0.3, memory: 3G, link: 1gbit, resolves: false}
  - {name: fern, cores: 0.5, memory: 3G, link: 1gbit, resolves: false}
"""
MEMBERS, STRANGER = ("rosa", "lily", "ivy"), "fern"
GATE_PORT = 29500
STEPS, PAUSE_S = 400, 0.35  # the pause ends with the attacks
LONGEST_STALL_S = 2.5
EXPIRES_S = 12.0
SCRIPT = """
import os, sys, time, torch, potluck
from torch import nn
from torch.utils.data import TensorDataset

steps, pause, into, loss_scale = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], float(sys.argv[4])
generator = torch.Generator().manual_seed(1)
inputs = torch.randn(640, 64, generator=generator, dtype=torch.float64)
data = TensorDataset(inputs, inputs[:, :10].argmax(1))
torch.manual_seed(2)
model = nn.Sequential(nn.Linear(64, int(sys.argv[5])), nn.ReLU(), nn.Linear(int(sys.argv[5]), 10)).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
with potluck.start(device="cpu", load_balance_policy="static", checkpoint_every=20) as run:
    prepared, optimizer = run.prepare(model, optimizer)
    loader = run.loader(data, global_batch=64)
    for _ in run.epochs(1 + steps // 10, max_steps=steps):
        for batch, wanted in loader:
            run.backward(loss_scale * nn.functional.cross_entropy(prepared(batch), wanted))
            optimizer.step()
            optimizer.zero_grad()
            if not os.path.exists(f"{into}-{run.folder.name}.hurry"):
                time.sleep(pause)
            print("step", run.step, flush=True)
    torch.save([parameter.detach() for parameter in model.parameters()], f"{into}-{run.folder.name}.pt")
"""


def main() -> None:
    """Attack, print what came of it, and end with one JSON line if asked; exit 1 if something is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = attack(Path(scratch))
    if options.json:
        print(json.dumps(result))
    sys.exit(bool(result["broken"]))


def attack(folder: Path) -> dict[str, Any]:
    """All attacks on one cluster."""
    with Gathering(folder, CLUSTER) as gathering:
        siege = Siege(gathering)
        siege.run()
        return siege.result()


class Siege:
    """A run under attack, and what each attack came to."""

    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self._lab = gathering.lab
        self._folder = gathering.folder
        self._script = gathering.place("rosa") / "script" / "train.py"
        self._script.parent.mkdir()
        self._script.write_text(SCRIPT)
        self._attacks: dict[str, dict[str, Any]] = {}
        self._phases: dict[str, tuple[float, float]] = {}
        self._stall_s = float("inf")
        self._same_bits = False
        self._figures: dict[str, float] = {}

    def result(self) -> dict[str, Any]:
        """Which attacks were held off, and whether the run felt them."""
        return {
            "attacks": self._attacks,
            "broken": sum(not one["held"] for one in self._attacks.values()),
            "longest_stall_s": self._stall_s,
            "same_bits": self._same_bits,
            **self._figures,
        }

    def run(self) -> None:
        """In order: join, a calm run, the service under attack, the run under attack, a worker that is healed, stop."""
        with self._watching() as watch:
            with self._phase("join", watch):
                host = self._gathering.host()
                host.expect("rosa is here", 60)
                self._gathering.join_all("lily", "ivy")
            self._train("calm", 0.0).wait(120)
            service = ServiceSiege(self._gathering, host, "calm", self._note)
            service.attack()
            self._figures = service.figures
            with self._recording() as recorded:
                train = self._train("siege", PAUSE_S)
                with self._phase("train", watch):
                    self._attack_run()
                    self._attack_gates(recorded)
                    is_on = self._run_state("siege")["state"] == "running"
                    self._note("the run outlasts the attacks", is_on, f"step {self._gathering.last_step('siege')}")
                (self._folder / "parameters-siege.hurry").touch()
                assert train.wait(240) == 0, train.output
            self._judge_run()
            with self._phase("heal and stop", watch):
                healed = self._train("healed", 0.05, steps=100_000)
                self._gathering.wait_for_step("healed", 20)
                for number in (1, 2):
                    self._kill_worker("lily")
                    self._wait_until_healed("healed", restarts=number)
                assert self._gathering.run("rosa", "stop")[0] == 0
                healed.wait(60)
            self._revoke()
        self._judge_ports(watch)

    # The run

    def _train(self, name: str, pause_s: float, steps: int = STEPS) -> Process:
        settings = ["--experiment-name", name, "--machines", "rosa,lily"]
        arguments = [steps, pause_s, self._folder / "parameters", 1.0, 64]
        return self._gathering.start("rosa", "run", *settings, self._script, *arguments)

    def _judge_run(self) -> None:
        steps = self._gathering.steps("siege", "rosa")
        self._stall_s = round(max(later.time - earlier.time for earlier, later in pairwise(steps)), 3)
        calm, attacked = (
            torch.load(self._folder / f"parameters-{name}.pt", weights_only=True) for name in ("calm", "siege")
        )
        self._same_bits = all(torch.equal(one, other) for one, other in zip(calm, attacked, strict=True))
        workers = {name for name in self._names_in("siege") if not name.startswith(MEMBERS)}
        self._note("the run's end is that of a calm one", self._same_bits and not workers, sorted(workers))
        self._note("no step stalls", self._stall_s <= LONGEST_STALL_S, f"{self._stall_s} s")

    def _names_in(self, run: str) -> list[str]:
        return [file.stem for file in (self._gathering.home_run(run) / "events").glob("*.jsonl")]

    def _record(self, run: str) -> dict[str, Any]:
        """What the host knows of a run."""
        file = self._gathering.place("rosa") / "home" / "host" / "runs" / f"{run}.json"
        known: dict[str, Any] = json.loads(file.read_text())
        return known

    def _run_state(self, run: str) -> dict[str, Any]:
        return next(one for one in self._gathering.status()["runs"] if one["run"] == run)

    def _restarts(self, run: str) -> int:
        return sum(one["restarts"] for workers in self._run_state(run)["workers"].values() for one in workers)

    def _has_healed(self, run: str) -> bool:
        """Whether the machine that lost its worker takes part again."""
        mine, others = (self._gathering.last_step(run, name) for name in ("lily", "rosa"))
        return mine > others - 10

    def _wait_until_healed(self, run: str, *, restarts: int) -> None:
        def is_healed() -> bool:
            return self._restarts(run) >= restarts and self._has_healed(run)

        self._gathering.wait_until(is_healed, "not healed")

    def _kill_worker(self, machine: str) -> None:
        """The newest process of the machine that runs the script."""
        found = (
            self._lab[machine]
            .run(["pgrep", "--newest", "--full", "potluck.meeting.workers.fork_server"])
            .output.split()
        )
        self._lab[machine].run(["kill", "-9", found[-1]])

    # Attacks 1 to 4 of an outsider who knows where the lighthouse is

    def _attack_run(self) -> None:
        self._gathering.wait_until(lambda: bool(self._listening("rosa", own=True)), "no lighthouse", 30)
        self._gathering.wait_for_step("siege", 3)
        address = self._gathering.status()["machines"][0]["loopback"]
        ports = sorted(self._listening("rosa", own=True))
        lighthouse = self._record("siege")["lighthouse_port"]
        before = self._restarts("siege")
        network = self._lab["rosa"].address
        intruders = {
            "poison": self._intrude("poison", network, lighthouse, 200.0, 64),
            "poison, on loopback": self._intrude("loopback", address, lighthouse, 200.0, 64),
            "another model": self._intrude("another", network, lighthouse, 1.0, 32),
        }
        kills = [self._kill_by_http(host, port) for host in (network, address) for port in ports]
        # Each has asked the lighthouse, and stands there or is in.
        self._gathering.wait_until(lambda: all(one.output for one in intruders.values()), "no intruder asks", 120)
        time.sleep(3)
        took_part = [key for key, process in intruders.items() if "step " in process.output]
        told = sorted({process.output[-200:] for process in intruders.values()})
        for process in intruders.values():
            process.kill()
        weights = list((self._gathering.place(STRANGER)).glob("**/*.pth"))
        self._note("1 joins a run and poisons it", not took_part, took_part or told)
        self._note("2 gets the weights", not weights, [str(one) for one in weights])
        crashed = self._restarts("siege") - before
        self._note("3 ends a run with another model", not crashed, f"{crashed} restarts")
        self._note("4 kills workers through the lighthouse", not any(kills) and not crashed, kills)

    def _intrude(self, name: str, host: str, port: int, scale: float, width: int) -> Process:
        """The run's own script, at its lighthouse, without its secret."""
        return self._lab[STRANGER].start(
            [*POTLUCK[:1], str(self._script), str(STEPS), "0", str(self._folder / "stolen"), str(scale), str(width)],
            cwd=self._gathering.place(STRANGER),
            env={
                **self._gathering.variables(STRANGER),
                "POTLUCK_LIGHTHOUSE": f"http://{host}:{port}",
                "POTLUCK_SECRET": "wrong",
                "POTLUCK_WORKER": "7",
                "POTLUCK_RUN": name,
            },
        )

    def _kill_by_http(self, host: str, port: int) -> bool:
        """Whether anything answers to what ends a worker in torchft's lighthouse."""
        code = (
            "import sys, urllib.request\n"
            f"request = urllib.request.Request('http://{host}:{port}/replica/lily-1/kill', method='POST')\n"
            "try:\n    urllib.request.urlopen(request, timeout=3)\n"
            "except urllib.error.HTTPError: pass\nexcept OSError: sys.exit(1)\n"
        )
        return self._lab[STRANGER].run([sys.executable, "-c", code]).returncode == 0

    def _listening(self, machine: str, *, own: bool) -> set[int]:
        """Ports of the machine on loopback addresses; `own` leaves out those where it stands in for others."""
        mine = next(one["loopback"] for one in self._gathering.status()["machines"] if one["machine"] == machine)
        lines = self._lab[machine].run(["ss", "-ltnH"]).output.splitlines()
        places = [line.split()[3].rpartition(":") for line in lines]
        return {int(port) for host, _, port in places if (host == mine if own else host.startswith("127."))}

    # Attacks on gates

    def _attack_gates(self, recorded: Path) -> None:
        gates = [f"{self._lab[name].address}:{GATE_PORT}" for name in MEMBERS]
        expired = self._gathering.place("old") / "home"
        self._make_identity(expired / "identity", days=EXPIRES_S / 86400)
        expires_at = time.time() + EXPIRES_S
        variables = {"POTLUCK_HOME": str(expired), "POTLUCK_NAME": "old"}
        old = self._gathering.start(STRANGER, "join", self._gathering.line, env=variables)
        old.expect("waiting for work", 30)
        self._ask_as_member(gates)
        self._replay(recorded)
        stranger = self._gathering.place(STRANGER) / "identity"
        self._make_identity(stranger)
        self._knock("a stranger's certificate", gates, "--identity", stranger)
        self._knock("no certificate", gates)
        time.sleep(max(0.0, expires_at + 1 - time.time()))
        self._knock("an expired member", gates, "--identity", expired / "identity")
        old.kill()
        again = self._gathering.start(STRANGER, "join", self._gathering.line, env=variables)
        refused = again.wait(30) != 0 and "has expired" in again.output
        self._note("an expired member joins again", refused, again.output.splitlines()[-1:])
        flooding = [self._intruder(STRANGER, "flood", "--seconds", 8, gate) for gate in gates[:2]]
        floods = []
        for flood in flooding:
            flood.wait(90)
            floods += [json.loads(line) for line in flood.output.splitlines()]
        longest_s = max(one["longest_s"] for one in floods)
        self._note("garbage and slow handshakes", len(floods) == 2 and longest_s < 8, floods)

    def _ask_as_member(self, gates: list[str]) -> None:
        """Ivy is a member of the cluster and has no part in the run."""
        identity = self._gathering.place("ivy") / "home" / "identity"
        run_id = self._record("siege")["id"]
        answered = []
        for gate, name in zip(gates[:2], ("rosa", "lily"), strict=True):
            ports = ",".join(map(str, sorted(self._listening(name, own=True))))
            other = "lily" if name == "rosa" else "rosa"
            for more in ([], ["--origin", other], ["--to", other], ["--to", other, "--origin", other]):
                asked = self._intruder(
                    "ivy", "knock", "--identity", identity, "--run", run_id, "--ports", ports, *more, gate
                )
                asked.wait(90)
                answered += [json.loads(line) for line in asked.output.splitlines()]
        let_in = [one for one in answered if one["is_in"]]
        # Whoever is a member and not in the run stands in for nothing of it either.
        stand_ins = self._listening("ivy", own=False) & self._listening("rosa", own=True)
        held = all(one["port"] for one in answered) and not let_in and not stand_ins
        self._note("a member that is not in the run", held, let_in or f"{len(answered)} ports asked for")

    def _replay(self, recorded: Path) -> None:
        """What rosa and lily have sent to each other's gates, sent again by fern."""
        sent = [one for one in read_sent(recorded, GATE_PORT) if one[1].startswith(GREETING)]
        answers = []
        for number, (address, content) in enumerate(sent[:4]):
            file = self._folder / f"replayed-{number}"
            file.write_bytes(content)
            replayed = self._intruder(STRANGER, "replay", file, f"{address}:{GATE_PORT}")
            replayed.wait(60)
            answers += [json.loads(line) for line in replayed.output.splitlines()]
        held = bool(answers) and not any(one["is_in"] for one in answers)
        self._note("replayed bytes", held, answers)

    def _revoke(self) -> None:
        """Ivy leaves, and keeps its key."""
        gates = [f"{self._lab[name].address}:{GATE_PORT}" for name in ("rosa", "lily")]
        identity = self._gathering.place("ivy") / "home" / "identity"
        was_in = self._ask(gates, "--identity", identity, machine="ivy")
        assert all(one["is_in"] for one in was_in), was_in
        assert self._gathering.run("rosa", "leave", "ivy")[0] == 0
        self._gathering.wait_until(lambda: self._gathering.states().get("ivy", "left") == "left", "ivy stays")
        time.sleep(1.0)
        self._knock("a revoked member", gates, "--identity", identity, machine="ivy")

    def _knock(self, name: str, gates: list[str], *arguments: object, machine: str = STRANGER) -> None:
        answers = self._ask(gates, *arguments, machine=machine)
        held = len(answers) == len(gates) and not any(one["is_in"] for one in answers)
        self._note(name, held, [one["told"] for one in answers])

    def _ask(self, gates: list[str], *arguments: object, machine: str) -> list[dict[str, Any]]:
        knocking = self._intruder(machine, "knock", *arguments, *gates)
        knocking.wait(60)
        return [json.loads(line) for line in knocking.output.splitlines()]

    def _intruder(self, machine: str, *arguments: object) -> Process:
        command = [sys.executable, "-m", "benchmarks.support.intruder", *map(str, arguments)]
        return self._lab[machine].start(command, cwd=ROOT, env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"})

    def _make_identity(self, folder: Path, days: float = 1) -> None:
        folder.mkdir(parents=True)
        certificate, key = make_certificate(days)
        write_secret(folder / "certificate.pem", certificate)
        write_secret(folder / "key.pem", key)

    # Open ports, all the time

    @contextmanager
    def _watching(self) -> "Iterator[dict[str, Process]]":
        """A scan of every port of every member by the stranger, and what the members themselves see listening."""
        addresses = [self._lab[name].address for name in MEMBERS]
        watch = {STRANGER: self._intruder(STRANGER, "scan", *addresses)}
        watch |= {name: self._intruder(name, "listeners") for name in MEMBERS}
        try:
            yield watch
        finally:
            for process in watch.values():
                process.kill()

    @contextmanager
    def _phase(self, name: str, watch: dict[str, Process]) -> Iterator[None]:
        """It lasts until the stranger has scanned everything once from its beginning on."""
        began = time.time()
        yield
        self._gathering.wait_until(
            lambda: any(one["began"] >= began for one in self._passes(watch[STRANGER])), "no scan ends", 120
        )
        self._phases[name] = (began, time.time())

    def _passes(self, process: Process) -> list[dict[str, Any]]:
        return [json.loads(line) for line in process.output.splitlines() if line.startswith("{")]

    def _judge_ports(self, watch: dict[str, Process]) -> None:
        for name, (began, ended) in self._phases.items():
            strange = []
            scans = [one for one in self._passes(watch[STRANGER]) if one["began"] < ended and one["ended"] > began]
            strange += [place for one in scans for place in one["found"] if place[1] != GATE_PORT]
            looks = 0
            for machine in MEMBERS:
                for one in self._passes(watch[machine]):
                    if one["began"] < ended and one["ended"] > began:
                        looks += 1
                        strange += [[machine, text] for text in one["found"] if not text.endswith(f" {GATE_PORT}")]
            whole = sum(one["began"] >= began and one["ended"] <= ended for one in scans)
            told = strange or f"{whole} whole scans, {20 * looks} looks, only port {GATE_PORT}"
            self._note(f"open ports during {name}", whole > 0 and looks > 0 and not strange, told)

    @contextmanager
    def _recording(self) -> Iterator[Path]:
        """All that rosa and lily send to each other's gates."""
        file = self._folder / "recorded.pcap"
        wanted = f"host {self._lab['lily'].address} and tcp dst port {GATE_PORT}"
        tcpdump = self._lab["rosa"].start(
            ["tcpdump", "-Z", "root", "-i", "eth0", "-U", "-s", "0", "-w", str(file), *wanted.split()]
        )
        tcpdump.expect("listening on", 20)
        try:
            yield file
        finally:
            tcpdump.send_signal(signal.SIGINT)
            tcpdump.wait(20)

    def _note(self, name: str, held: object, told: object) -> None:
        self._attacks[name] = {"held": bool(held), "told": told}
        print(f"{'held  ' if held else 'BROKEN'}  {name}: {str(told)[:300]}", flush=True)


if __name__ == "__main__":
    main()
