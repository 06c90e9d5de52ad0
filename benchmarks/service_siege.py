"""Attacks on a host's service, on what it reads and on what it prints: none may work, and nobody may be locked out.

    python -m benchmarks.service_siege --json

Part of `benchmarks.outsider`; alone it takes a minute. Rosa hosts, lily and ivy have joined and one run is finished;
fern has not joined. Where an attack needs a member, lily's credential is used: that is what a member's disk damage or
a hostile member could send.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.support.gathering import SMALL, Gathering
from benchmarks.support.lab_machines import ROOT
from lab import Process

STRANGER, PORT = "fern", 29500
MOST_VERSION_S = 0.5
FLOOD_S = 7.0
MOST_LINES = 50
CLUSTER = "machines:\n" + "".join(
    f"  - {{name: {name}, cores: {cores}, memory: 3G, link: 1gbit, resolves: false}}\n"
    for name, cores in (("rosa", 0.6), ("lily", 0.6), ("ivy", 0.3), ("fern", 0.5))
)
OUTSIDE = "../../../../etc/hostname"
HOSTILE = "\x1b]0;owned\x07\x1b[2J\u009b1A\u202e"
BAD_LINES = (
    b'{"sequence":1,"time":1.0,"event":{"type":"\xff\xfe"}}\n',
    b'{"sequence":1,"time":1.0,"event":{"type":"new","x":' + b"[" * 100_000 + b"}}\n",
    b'{"sequence":1,"time":1e999,"event":{"type":"notice","text":""}}\n',
    b'{"sequence":1,"time":1,"event":{"type":"machine_unbenched","step":99999999999999999999,"machine":"","reason":""}}\n',
)
Note = Callable[[str, object, object], None]


class ServiceSiege:
    """What a stranger, and somebody with a member's credential, tries on the host's service."""

    def __init__(self, gathering: Gathering, host: Process, run: str, note: Note) -> None:
        self._gathering = gathering
        self._lab = gathering.lab
        self._host = host
        self._run = run
        self._note = note
        self._address = f"{self._lab['rosa'].address}:{PORT}"
        self.figures: dict[str, float] = {}

    def attack(self) -> None:
        """All of them, one after the other."""
        self._lock_out()
        self._run_a_file_that_no_bundle_holds()
        self._command_terminals()
        self._damage_events()
        self._lab["ivy"].freeze()
        try:
            self._flood("6 JSON before credentials", "bodies")
            self._flood("7 idle connections", "idle")
            self._judge_watch()
        finally:
            self._lab["ivy"].thaw()
        self._gathering.wait_until(lambda: self._gathering.states()["ivy"] == "here", "ivy is not back", 30)
        self._judge_terminal()

    def _flood(self, name: str, verb: str) -> None:
        """An honest stranger's question for the version, and a member's commands, while somebody floods the host."""
        before = len(self._host.output)
        flood = self._intrude(STRANGER, verb, "--seconds", FLOOD_S, self._address)
        time.sleep(1.5)  # until the intruder's Python is up
        version = self._result(self._intrude("lily", "version", "--seconds", FLOOD_S - 3.0, self._address))
        status, _ = self._gathering.run("lily", "status", "--json")
        flooded = self._result(flood)
        printed = self._host.output[before:].count("\n")
        self.figures[f"version_{verb}_median_s"] = version["median_s"]
        self.figures[f"version_{verb}_longest_s"] = version["longest_s"]
        self.figures[f"printed_{verb}_lines"] = printed
        is_here = all(self._gathering.states().get(machine) == "here" for machine in ("rosa", "lily"))
        is_quick = version["asked"] > 3 and version["longest_s"] <= MOST_VERSION_S
        held = is_quick and status == 0 and is_here and printed < MOST_LINES
        self._note(name, held, {**version, **flooded, "printed_lines": printed, "all_here": is_here})

    def _lock_out(self) -> None:
        """Wrong answers from lily's own address: lily is let in all the same, and its agent goes on."""
        wrong = self._result(self._intrude("lily", "wrong", self._address))
        code, _ = self._gathering.run("lily", "status", "--json")
        time.sleep(1.0)
        is_here = self._gathering.states()["lily"] == "here"
        held = wrong["statuses"].count("429") > 0 and code == 0 and is_here
        self._note("8 a valid machine is locked out", held, wrong["statuses"])

    def _run_a_file_that_no_bundle_holds(self) -> None:
        answers = [
            self._ask("POST", "/runs", json.dumps({"task": {"entry": OUTSIDE, "bundle": bundle}}).encode())
            for bundle in (None, "0" * 64)
        ]
        self._note("11 an entry outside its bundle", all("refused" in one for one in answers), answers)

    def _command_terminals(self) -> None:
        """A member's events hold terminal commands in every text."""
        hostile = json.dumps(HOSTILE)
        events = (
            f'{{"type":"run_started","run":{hostile},"machine":{hostile},"worker":8,"process_id":1,"device":{hostile},'
            f'"mixed_precision":"no","versions":{{{hostile}:{hostile}}}}}',
            f'{{"type":"notice","text":{hostile}}}',
            f'{{"type":"machine_benched","step":1,"machine":{hostile},"reason":{hostile},"samples_per_s":1,'
            '"samples_per_s_with_it":1}',
        )
        now = time.time()
        lines = [f'{{"sequence":{n},"time":{now},"event":{event}}}\n' for n, event in enumerate(events)]
        self._deliver(8, "".join(lines).encode())
        page = self._gathering.place("rosa") / "report.html"
        commands = (["report", self._run], ["report", self._run, "--html", page], ["runs"], ["status"])
        results = [self._gathering.run("rosa", *command) for command in commands]
        raw = [re.findall("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]", output) for _, output in results]
        codes, num_raw = [code for code, _ in results], sum(map(len, raw))
        held = not any(codes) and not num_raw and page.is_file()
        self._note("9 terminal escapes in events", held, {"codes": codes, "raw": num_raw})

    def _damage_events(self) -> None:
        """Lines that no reader expects, delivered by a member."""
        self._deliver(9, b"".join(BAD_LINES))
        paths = ("/status", f"/runs/{self._run}", "/metrics")
        answers = {path: "answer" in self._ask("GET", path) for path in paths}
        answers["/stop"] = "answer" in self._ask("POST", f"/runs/{self._run}/stop")
        self._note("5 one bad line in an event file", all(answers.values()), answers)
        code, output = self._gathering.run("rosa", "report", self._run)
        told = {"code": code, "output": output[-300:]}
        held = code == 1 and "lily-9.jsonl, line 1" in output and "fix:" in output and "Traceback" not in output
        self._note("10 a hostile run folder", held, told)

    def _judge_watch(self) -> None:
        """The host's look at all machines, once a second, has survived: it notices that ivy is silent."""
        self._gathering.wait_until(lambda: self._gathering.states()["ivy"] == "away", "ivy is not missed", 30)
        self._note("5 the host notices a frozen machine", "ivy is away", "ivy is away")

    def _judge_terminal(self) -> None:
        traces = self._host.output.count("Traceback")
        self._note("no traceback on the host's terminal", traces == 0, f"{traces} tracebacks")

    # Speaking

    def _deliver(self, worker: int, content: bytes) -> None:
        path = f"/runs/{self._run}/files?file=events/lily-{worker}.jsonl&offset=0"
        answer = self._ask("POST", path, content)
        assert json.loads(str(answer.get("answer", "{}"))).get("size") == len(content), answer

    def _ask(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        file = self._gathering.folder / "body"
        file.write_bytes(body)
        home = self._gathering.place("lily") / "home"
        return self._result(self._intrude("lily", "ask", "--home", home, "--body", file, method, path))

    def _intrude(self, machine: str, *arguments: object) -> Process:
        command = [sys.executable, "-m", "benchmarks.support.http_intruder", *map(str, arguments)]
        return self._lab[machine].start(command, cwd=ROOT, env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"})

    def _result(self, process: Process) -> dict[str, Any]:
        process.wait(90)
        found: dict[str, Any] = json.loads(process.output.splitlines()[-1])
        return found


def main() -> None:
    """The service's part of the siege, with a small run of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    attacks: dict[str, Any] = {}

    def note(name: str, held: object, told: object) -> None:
        attacks[name] = {"held": bool(held), "told": told}
        print(f"{'held  ' if held else 'BROKEN'}  {name}: {str(told)[:300]}", flush=True)

    with tempfile.TemporaryDirectory() as scratch, Gathering(Path(scratch), CLUSTER) as gathering:
        host = gathering.host()
        host.expect("rosa is here", 60)
        gathering.join_all("lily", "ivy")
        code, output = gathering.run("rosa", "train", *SMALL, "--epochs", 1, "--experiment-name", "calm", timeout_s=120)
        assert code == 0, output
        siege = ServiceSiege(gathering, host, "calm", note)
        siege.attack()
    result = {"attacks": attacks, "broken": sum(not one["held"] for one in attacks.values()), **siege.figures}
    if options.json:
        print(json.dumps(result))
    sys.exit(bool(result["broken"]))


if __name__ == "__main__":
    main()
