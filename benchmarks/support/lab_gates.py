"""A gate on every machine of a lab, as agents have it, for workers that are started without a host.

All machines of the lab are members, and all are in one run. Each machine's gate is a process there:

    python -m benchmarks.support.lab_gates --folder FOLDER --machine rosa --expose 29510
"""

import argparse
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.support.lab_machines import ROOT
from lab import Lab, Process
from potluck.core.environment import gate_variables
from potluck.gates.exposing import GateLine
from potluck.gates.identity import load_or_make
from potluck.gates.loopback import address_of, choose_block
from potluck.gates.messages import ClusterMachine, Settings

GATE_PORT = 29500
RUN = "benchmark"
_OPEN = "the gate is open"
_OPEN_S = 30.0


class LabGates:
    """Gates of a lab's machines; the first machine's makes a lighthouse's port known to the others."""

    def __init__(
        self, lab: Lab, folder: Path, *, lighthouse_port: int, pinned: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._lab = lab
        self._folder = folder
        self._lighthouse_port = lighthouse_port
        self._pinned = pinned or {}
        self._block = choose_block()
        self._numbers = {machine.name: number for number, machine in enumerate(lab.machines, start=1)}
        self._keepers: dict[str, Process] = {}
        for machine in lab.machines:
            _place(folder, machine.name).mkdir(parents=True, exist_ok=True)
        members = tuple(
            ClusterMachine(
                machine=machine.name,
                number=self._numbers[machine.name],
                certificate=load_or_make(_place(folder, machine.name) / "identity").certificate,
                addresses=(machine.address,),
                port=GATE_PORT,
            )
            for machine in lab.machines
        )
        names = tuple(self._numbers)
        for name in names:
            settings = Settings(machine=name, host=names[0], block=self._block, members=members, runs={RUN: names})
            (_place(folder, name) / "settings.json").write_bytes(msgspec.json.encode(settings) + b"\n")

    def start(self, *names: str) -> None:
        """Start these machines' gates, or start them again."""
        for name in names:
            command = [*self._pinned.get(name, ()), sys.executable, "-m", "benchmarks.support.lab_gates"]
            command += ["--folder", str(self._folder), "--machine", name]
            if self._numbers[name] == 1:
                command += ["--expose", str(self._lighthouse_port)]
            self._keepers[name] = self._lab[name].start(command, cwd=ROOT)
        for name in names:
            self._keepers[name].expect(_OPEN, _OPEN_S)

    def stop(self) -> None:
        """End all gates: their ports are free for the next run in this lab."""
        for keeper in self._keepers.values():
            keeper.kill()
            keeper.wait(10)

    def is_open(self, name: str) -> bool:
        """Whether the machine's gate runs."""
        return name in self._keepers and self._keepers[name].returncode is None

    def address(self, name: str) -> str:
        """The machine's address, on every machine."""
        return address_of(self._block, self._numbers[name])

    def variables(self, name: str) -> dict[str, str]:
        """What the machine's worker is told."""
        return gate_variables(str(_place(self._folder, name) / "gate"), RUN, self.address(name))


def main() -> None:
    """Keep one machine's gate open."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--expose", type=int, help="a port of the run on this machine's loopback address")
    options = parser.parse_args()
    place = _place(options.folder, options.machine)
    settings = (place / "settings.json").read_bytes()
    me = next(one for one in msgspec.json.decode(settings, type=Settings).members if one.machine == options.machine)
    with socket.create_server((me.addresses[0], me.port)) as listener:
        command = [sys.executable, "-m", "potluck.gates.main"]
        command += ["--identity", str(place / "identity"), "--socket", str(place / "gate")]
        command += ["--listen", str(listener.fileno())]
        gate = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()])
    assert gate.stdin is not None
    gate.stdin.write(settings)
    gate.stdin.flush()
    line = GateLine(str(place / "gate"), RUN)
    line.expose({} if options.expose is None else {options.expose: "control"}, waits=False)
    print(_OPEN, flush=True)
    sys.exit(gate.wait())


def _place(folder: Path, name: str) -> Path:
    return folder / "gates" / name


if __name__ == "__main__":
    main()
