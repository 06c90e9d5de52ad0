"""The process that holds a machine's workers: what it is told on stdin, what it tells, and how it ends."""

import json
import subprocess
import sys
import time

import psutil
import pytest

SCRIPTS = {
    "fine": "import atexit, os, sys; atexit.register(print, 'closed'); print(sys.argv[1], os.environ['WORD'])",
    "wrong": "import potluck; raise potluck.PotluckError('no such file', fix='make it')",
    "long": "import time; print('begun', flush=True); time.sleep(1000)",
}


class CrewProcess:
    def __init__(self, folder):
        self._folder = folder
        command = [sys.executable, "-m", "potluck.meeting.crew"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.hear() == {"ready": True}

    def hear(self):
        return json.loads(self.process.stdout.readline())

    def tell(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def start(self, name):
        (self._folder / f"{name}.py").write_text(SCRIPTS[name])
        self.tell(
            start={
                "run": name,
                "machine": "lily",
                "run_folder": str(self._folder / "runs" / name),
                "folder": str(self._folder),
                "task": {"settings": None, "entry": f"{name}.py", "arguments": ["first"]},
                "workers": {"3": {"WORD": "second"}},
            }
        )

    def end_of(self, name):
        """How the run's worker ended; a short one may have before it was seen running."""
        while (news := self.hear())["state"] == "running":
            pass
        assert (news["run"], news["worker"]) == (name, 3)
        return news

    def log(self, name, kind):
        file = self._folder / "runs" / name / "logs" / f"lily-3.start-1.{kind}.log"
        return file.read_text() if file.exists() else ""  # the worker itself makes it


@pytest.fixture
def crew(tmp_path):
    held = CrewProcess(tmp_path)
    yield held
    held.process.stdin.close()
    held.process.wait(20)
    held.process.stdout.close()


def test_a_crew_starts_tells_stops_and_takes_its_workers_along(crew):
    crew.start("fine")
    assert crew.end_of("fine")["state"] == "finished"
    assert crew.log("fine", "out").split() == ["first", "second", "closed"]  # exit handlers as in any program

    crew.start("wrong")
    ended = crew.end_of("wrong")
    assert (ended["state"], ended["restarts"]) == ("failed", 0)  # a person has to mend it: not tried again
    assert "no such file" in ended["message"]
    assert "fix: make it" in ended["message"]

    crew.start("long")
    _wait_until(lambda: "begun" in crew.log("long", "out"))
    crew.tell(stop="long")
    assert crew.end_of("long")["state"] == "stopped"

    crew.start("long")
    assert crew.hear()["state"] == "running"
    workers = psutil.Process(crew.process.pid).children()
    assert len(workers) == 1
    crew.tell(patience_s=1.0)
    crew.process.stdin.close()
    assert crew.process.wait(20) == 0
    assert not workers[0].is_running()


def _wait_until(condition, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
