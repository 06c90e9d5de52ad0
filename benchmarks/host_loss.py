"""The host is lost for good in the middle of a run: how long do the others commit no step, and is anything lost?

    python -m benchmarks.host_loss --json
    python -m benchmarks.host_loss --cluster mixed --case killed,cut --json

Cases: `killed` (all processes of the host's machine end), `frozen` (they stop, as when a lid is closed), `cut` (its
cable is out), `disk` (its disk is gone: nothing can be written below its home and its run folders), `handover` (the
host's part is given away on purpose). After a loss the machines that are left must commit steps again; `status`,
`report` and `stop` are asked of the new host, a machine joins late with its line, and where the old host can come back
it must do so as an ordinary machine. Steps and samples are counted in the events of all machines: `steps_lost` are
steps that were committed before the loss and are missing in the new host's files, `steps_twice` and `steps_not_whole`
those of the whole run that all machines together trained more or less than once.

    python -m benchmarks.host_loss --schedules 20 --json

Seeded schedules of losses of the host, its successors and links, several at a time, on five machines in one run: no
term has two hosts, and the run's steps are those of one process. See benchmarks.support.host_schedules.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.support.committed import Committed, committed, committed_by, num_whole
from benchmarks.support.gathering import Gathering
from benchmarks.support.host_schedules import lose_hosts
from benchmarks.support.lab_error import exit_on_lab_error
from lab import LabError, Process
from lab.cluster_file import load_cluster

CLUSTERS = Path(__file__).parent.parent / "lab" / "clusters"
CASES = ("killed", "frozen", "cut", "disk", "handover")
STALL_S = 10.0
_BEFORE = 40
_AFTER = 60
_LATE = "late"
_LONGEST_S = 120.0
_COMMAND_S = 240.0  # on 0.13 of a core, which a worker uses too, Python alone takes most of a minute to begin
RUN = "lost"


class HostLoss:
    """One run in a lab, whose host is lost."""

    def __init__(self, gathering: Gathering, machines: list[str]) -> None:
        self._gathering = gathering
        self._host, *self._others = machines
        self._started: dict[str, Process] = {}

    def measure(self, case: str) -> dict[str, Any]:
        """Lose the host in this way; what it cost, and what works afterwards."""
        gathering = self._gathering
        self._started[self._host] = gathering.host()
        self._started |= gathering.join_all(*self._others)
        self._wait_for_copies()
        kept = [word for name in (self._host, *self._others) for word in ("--keep", name)]
        train = gathering.start(
            self._others[0],
            "train",
            "--model-size",
            "tiny",
            "--num-samples",
            6400,
            "--epochs",
            1000,
            *kept,
            "--experiment-name",
            RUN,
        )
        self._wait_for_step(_BEFORE)
        before = self._committed(self._others)
        lost_at = time.time()
        self._lose(case)
        self._wait_for_step(max(before) + _AFTER)
        new_host = self._new_host()
        figures = {
            "stall_s": self._stall_s(lost_at),
            "new_host": new_host,
            "late_join": self._join_late(new_host),
            "status": self._works(self._others[-1], "status"),
            "report": self._works(self._others[-1], "report", RUN),
            "returned": self._return(case),
        }
        figures["stop"] = self._works(self._others[-1], "stop", RUN)
        figures["exit_code"] = train.wait(90)
        time.sleep(3.0)
        return {"case": case, **figures, **self._laws(new_host, before)}

    def printed(self) -> str:
        """What all machines have printed."""
        said = {name: self._gathering.printed(one) for name, one in self._started.items()}
        for name in (self._host, *self._others):
            for log in ("host/agent.log", "succession/host.log"):
                file = self._gathering.place(name) / "home" / log
                said[f"{name} {log}"] = file.read_text() if file.is_file() else ""
        return "\n".join(f"== {name}\n{text[-3000:]}" for name, text in said.items())

    # Before and at the loss

    def _wait_for_copies(self) -> None:
        """Until the successors have copied the host's state: right after a join they have not."""
        self._gathering.wait_for_copies(1 + len(self._others))

    def _lose(self, case: str) -> None:
        machine = self._gathering.lab[self._host]
        if case == "killed":
            machine.kill()
        elif case == "frozen":
            machine.freeze()
        elif case == "cut":
            machine.cut()
        elif case == "disk":
            for folder in ("home", "experiments"):
                place = self._gathering.place(self._host) / folder
                place.rename(place.with_name(f"{folder}.gone"))
                place.write_text("a file in the folder's place: nothing can be written below it\n")
        else:
            code, output = self._gathering.run(self._others[0], "handover", self._others[0])
            assert code == 0, output

    def _return(self, case: str) -> bool | None:
        """Whether the old host takes part again; None where it cannot come back."""
        machine = self._gathering.lab[self._host]
        if case == "disk":
            return None
        if case == "killed":
            self._started[f"{self._host} again"] = self._gathering.start(self._host, "host")
        elif case == "frozen":
            machine.thaw()
        elif case == "cut":
            machine.mend()
        since = time.time()
        try:
            self._gathering.wait_until(
                lambda: any(one.time > since for one in self._records(self._host)), "it stays away", _LONGEST_S
            )
        except AssertionError:
            return False
        return bool(self._gathering.status(self._others[0])["host"] == self._new_host() != self._host)

    # Afterwards

    def _new_host(self) -> str:
        found = ""

        def is_there() -> bool:
            nonlocal found
            code, output = self._gathering.run(self._others[0], "status", "--json", timeout_s=_COMMAND_S)
            found = str(json.loads(output)["host"]) if code == 0 else ""
            return found not in ("", self._host)

        self._gathering.wait_until(is_there, "there is no new host", _LONGEST_S)
        return found

    def _join_late(self, new_host: str) -> bool:
        """Whether a machine that never joined before can join the new host with the line that is kept there."""
        line = (self._gathering.place(new_host) / "home" / "host" / "invitation.txt").read_text().split()[2]
        joining = self._gathering.start(_LATE, "join", line)
        self._started[_LATE] = joining
        try:
            joining.expect(f" as {_LATE}", 60)
        except LabError:  # what it printed is shown at the end
            return False
        return True

    def _works(self, machine: str, *words: str) -> bool:
        code, output = self._gathering.run(machine, *words, timeout_s=_COMMAND_S)
        if code:
            print(f"potluck {' '.join(words)} on {machine}: {output}", file=sys.stderr)
        return code == 0

    def _stall_s(self, lost_at: float) -> float:
        """The longest time without a step on the machines that are left, from just before the loss on."""
        times = sorted(one.time for name in self._others for one in self._records(name) if one.time > lost_at - 5.0)
        return max(later - earlier for earlier, later in pairwise(times))

    def _laws(self, new_host: str, before: set[int]) -> dict[str, Any]:
        """Every step committed before is in the new host's files; every sample of every step counts once."""
        there = self._gathering.place(new_host) / "home" / "runs" / RUN
        kept = {one.step.step for file in there.glob("events/*.jsonl") for one in committed(file)}
        machines = (self._host, *self._others, _LATE)
        whole = num_whole(one.step for name in machines for one in self._records(name))
        return {
            "steps": len(whole),
            "steps_lost": len(before - kept) + len(set(range(1, max(whole) + 1)) - set(whole)),
            "steps_missing_at_new_host": len(set(whole) - kept),
            "steps_twice": sum(number > 1 for number in whole.values()),
            "steps_not_whole": sum(number == 0 for number in whole.values()),
        }

    def _records(self, machine: str) -> list[Committed]:
        return committed_by(self._gathering, machine, RUN)

    def _committed(self, machines: list[str]) -> set[int]:
        return {one.step.step for name in machines for one in self._records(name)}

    def _wait_for_step(self, step: int) -> None:
        self._gathering.wait_until(
            lambda: max(self._committed(self._others), default=0) >= step, f"no step {step}", _LONGEST_S
        )


def measure(cluster: str, case: str) -> dict[str, Any]:
    """One case in one cluster."""
    text = (CLUSTERS / f"{cluster}.yaml").read_text()
    names = [machine.name for machine in load_cluster(CLUSTERS / f"{cluster}.yaml").machines]
    # The host is the machine that Gathering starts it on.
    text = text.replace(f"name: {names[0]},", "name: rosa,")
    text += f"  - {{name: {_LATE}, cores: 0.15, memory: 2G, link: 1gbit}}\n"
    folder = Path(tempfile.mkdtemp(prefix="potluck-host-loss-"))
    try:
        with Gathering(folder, text) as gathering:
            loss = HostLoss(gathering, ["rosa", *names[1:]])
            try:
                figures = {"cluster": cluster, **loss.measure(case)}
                if not is_good(figures):
                    print(loss.printed(), file=sys.stderr)
                return figures
            except AssertionError as error:
                print(loss.printed(), file=sys.stderr)
                return {"cluster": cluster, "case": case, "failure": str(error)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_good(figures: dict[str, Any], stall_s: float = STALL_S) -> bool:
    """Whether the case met its bars."""
    works = all(figures.get(name) for name in ("status", "report", "stop", "late_join"))
    counted = ("steps_lost", "steps_missing_at_new_host", "steps_twice", "steps_not_whole")
    laws = all(figures.get(name) == 0 for name in counted)
    return works and laws and figures["stall_s"] <= stall_s and figures["returned"] is not False


def main() -> None:
    """Measure, print a line a case, with --json one line for scripts at the end; exit 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="laptops,mixed")
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    parser.add_argument("--schedules", type=int, help="this many seeded schedules in place of the cases")
    parser.add_argument("--seed", type=int, default=1, help="of the first schedule")
    options = parser.parse_args()
    rows = []
    with exit_on_lab_error():
        if options.schedules:
            figures = lose_hosts(range(options.seed, options.seed + options.schedules))
            print(json.dumps({"benchmark": "host_loss", **asdict(figures)}))
            sys.exit("; ".join(figures.broken()) or 0)
        for cluster in options.cluster.split(","):
            for case in options.case.split(","):
                rows.append(measure(cluster, case))
                print(json.dumps(rows[-1]), flush=True)
    if options.json:
        stalls = {f"{row['cluster']} {row['case']}": row.get("stall_s") for row in rows}
        lost = {f"{row['cluster']} {row['case']}": row.get("steps_lost") for row in rows}
        print(json.dumps({"benchmark": "host_loss", "stall_s": stalls, "steps_lost": lost, "rows": rows}))
    sys.exit(not all("failure" not in row and is_good(row) for row in rows))


if __name__ == "__main__":
    main()
