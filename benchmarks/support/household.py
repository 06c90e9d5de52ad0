"""Five machines that meet, each with a disk and a clock of its own, and a run on all of them that nobody follows."""

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.support.gathering import Gathering
from lab import LabTimeoutError, Process

NAMES = ("rosa", "lily", "fern", "iris", "moss")
CLUSTER = "machines:\n" + "".join(
    f"  - {{name: {name}, cores: 0.36, memory: 3G, link: 1gbit, resolves: false}}\n" for name in NAMES
)
SCRIPT = Path(__file__).with_name("soak_script.py")
RUN = "soak"
_PAUSE_S = 0.1
_ANSWER_S = 20.0
_DISK = "1G"
Result = TypeVar("Result")


class Household:
    """Machines that met, each with a disk and a clock of its own; rosa is the first host."""

    def __init__(self, gathering: Gathering, progress: Path) -> None:
        self.gathering = gathering
        self.progress = progress
        self.agents: dict[str, Process] = {}

    @staticmethod
    def make_disks(folder: Path) -> None:
        """A small file system in the place of each machine's folder."""
        for name in NAMES:
            (folder / name).mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK}", f"soak-{name}", folder / name], check=True)

    @staticmethod
    def drop_disks(folder: Path) -> None:
        """All of them, with what is on them."""
        for name in NAMES:
            subprocess.run(["umount", "--lazy", folder / name], check=False)

    def begin(self) -> None:
        """Host, joined machines, and copies of the host's state on its successors."""
        self.agents["rosa"] = self.gathering.host(env=self._clock("rosa"))
        for name in NAMES[1:]:
            self.join(name)
        for name in NAMES[1:]:
            self.agents[name].expect("waiting for work", 90)
        self.gathering.wait_for_copies(len(NAMES))

    def join(self, name: str) -> None:
        """By the line of the host of now, if there is one; a machine that nobody invites asks those that it knows."""
        invitation = self.gathering.place(self.host() or "rosa") / "home" / "host" / "invitation.txt"
        line = invitation.read_text().split()[2] if invitation.is_file() else self.gathering.line
        self.agents[name] = self.gathering.start(name, "join", line, env=self._clock(name))

    def come_back(self, name: str) -> None:
        """As its user would start it again: the first host by `potluck host`, another machine by `potluck join`."""
        command = "host" if name == "rosa" else "join"
        self.agents[name] = self.gathering.start(name, command, env=self._clock(name))

    def host(self) -> str:
        """The host's name, as the first machine says that answers; empty if none does."""
        return str(self.status().get("host", ""))

    def status(self) -> dict[str, Any]:
        """What `potluck status` says on the first machine on which it answers; empty if there is none."""
        for name in NAMES:
            asked = self.gathering.start(name, "status", "--json")
            try:
                code = asked.wait(_ANSWER_S)
            except LabTimeoutError:  # on a frozen machine the command is frozen, too
                asked.kill()
                continue
            if code == 0:
                status: dict[str, Any] = json.loads(asked.output)
                return status
        return {}

    def newest_step(self, name: str) -> int:
        """The last step that the machine's worker committed; 0 before the first."""
        try:
            return int((self.progress / name).read_text() or 0)
        except (OSError, ValueError):  # before its first step, or just being written
            return 0

    def newest(self) -> int:
        """The last step that any machine has committed."""
        return max(map(self.newest_step, NAMES))

    def trains(self, name: str) -> bool:
        """Whether the machine committed a step within the last seconds."""
        try:
            return time.time() - (self.progress / name).stat().st_mtime < 3.0
        except OSError:
            return False

    def fill_disk(self, name: str) -> None:
        """Not a byte more can be written to the machine's folder."""
        folder = self.gathering.place(name)
        used = int(subprocess.check_output(["df", "--output=used", "-B1", folder], text=True).split()[1])
        subprocess.run(["mount", "-o", f"remount,size={used + 4096}", folder], check=True)

    def empty_disk(self, name: str) -> None:
        """Room again."""
        subprocess.run(["mount", "-o", f"remount,size={_DISK}", self.gathering.place(name)], check=True)

    def set_clock(self, name: str, seconds: int) -> None:
        """The machine's clock jumps so far from the right time."""
        with self._clock_file(name).open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))

    def _clock(self, name: str) -> dict[str, str]:
        """What gives the machine's commands a clock of their own."""
        library = self.gathering.folder / "jumping_clock.so"
        if not library.exists():
            source = Path(__file__).with_name("jumping_clock.c")
            subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self._clock_file(name).write_bytes(bytes(8))
        return {"LD_PRELOAD": str(library), "JUMPING_CLOCK": str(self._clock_file(name))}

    def _clock_file(self, name: str) -> Path:
        return self.gathering.folder / f"{name}.clock"


def in_household(live: Callable[[Household], Result], keep: Path | None = None) -> Result:
    """What comes of `live` with five machines in a lab; if it fails, also what these have printed."""
    folder = Path(tempfile.mkdtemp(prefix="potluck-soak-"))
    progress = folder / "progress"
    progress.mkdir()
    Household.make_disks(folder)
    try:
        with Gathering(folder, CLUSTER) as gathering:
            household = Household(gathering, progress)
            try:
                return live(household)
            except BaseException:
                _show(household)
                raise
            finally:
                if keep:
                    _keep(folder, keep)
    finally:
        Household.drop_disks(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _keep(folder: Path, keep: Path) -> None:
    """Copy what the machines' runs and successions left."""
    sockets = shutil.ignore_patterns("*.socket")
    for name in NAMES:
        for place in ("home/runs", "experiments", "home/succession"):
            if (folder / name / place).is_dir():
                shutil.copytree(folder / name / place, keep / name / place, dirs_exist_ok=True, ignore=sockets)


def begin_training(household: Household) -> None:
    """Host, joined machines, and a run on all of them that nobody follows."""
    gathering = household.gathering
    household.begin()
    kept = [word for name in NAMES for word in ("--keep", name)]
    script = [SCRIPT, "--progress", household.progress, "--pause", _PAUSE_S]
    started = gathering.start("lily", "run", *kept, "--no-tuning", "--experiment-name", RUN, *script)
    household.agents["the command"] = started
    gathering.wait_until(lambda: all(household.newest_step(name) > 5 for name in NAMES), "not all train", 90)
    started.kill()  # the run is the machines'; whoever started it may close the terminal


def end_training(household: Household) -> None:
    """Stop the run; its files are at the host soon after."""
    code, output = household.gathering.run("fern", "stop", RUN, timeout_s=120)
    assert code == 0, output
    household.gathering.wait_until(lambda: not any(map(household.trains, NAMES)), "the run does not stop", 60)
    time.sleep(5)


def _show(household: Household) -> None:
    for name in household.agents:
        say(f"== {name} ==\n{household.gathering.printed(household.agents[name])[-2500:]}")
        for log in ("host/agent.log", "succession/host.log"):
            file = household.gathering.place(name) / "home" / log
            if file.is_file():
                print(f"-- {name} {log}\n{file.read_text()[-2500:]}", flush=True)


def say(text: str) -> None:
    """A line with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
