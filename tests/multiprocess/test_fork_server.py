"""The fork server as a process: what it is told on stdin, what it tells, and how it ends."""

import queue
import subprocess
import sys
import time

import msgspec
import psutil
import pytest

from potluck.meeting.workers.fork_client import ForkClient, ForkServerEnded
from potluck.meeting.workers.messages import (
    EndWithin,
    ForkServerReady,
    FromForkServer,
    ScriptTask,
    StartWorkers,
    StopWorkers,
)

SCRIPTS = {
    "fine": "import atexit, os, sys; atexit.register(print, 'closed'); print(sys.argv[1], os.environ['WORD'])",
    "wrong": "import potluck; raise potluck.PotluckError('no such file', fix='make it')",
    "long": "import time; print('begun', flush=True); time.sleep(1000)",
}


class ForkServerProcess:
    def __init__(self, folder):
        self._folder = folder
        command = [sys.executable, "-m", "potluck.meeting.workers.fork_server"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self.hear() == ForkServerReady()

    def hear(self):
        return msgspec.json.decode(self.process.stdout.readline(), type=FromForkServer)

    def tell(self, message):
        self.process.stdin.write(msgspec.json.encode(message) + b"\n")
        self.process.stdin.flush()

    def start(self, name):
        (self._folder / f"{name}.py").write_text(SCRIPTS[name])
        self.tell(
            StartWorkers(
                run=name,
                machine="lily",
                run_folder=str(self._folder / "runs" / name),
                folder=str(self._folder),
                task=ScriptTask(entry=f"{name}.py", arguments=["first"]),
                workers={3: {"WORD": "second"}},
            )
        )

    def end_of(self, name):
        """How the run's worker ended; a short one may have before it was seen running."""
        while (news := self.hear()).state == "running":
            pass
        assert (news.run, news.worker) == (name, 3)
        return news

    def log(self, name, kind):
        file = self._folder / "runs" / name / "logs" / f"lily-3.start-1.{kind}.log"
        return file.read_text() if file.exists() else ""  # the worker itself makes it


@pytest.fixture
def server(tmp_path):
    held = ForkServerProcess(tmp_path)
    yield held
    held.process.stdin.close()
    held.process.wait(20)
    held.process.stdout.close()


def test_a_fork_server_starts_tells_stops_and_takes_its_workers_along(server):
    server.start("fine")
    assert server.end_of("fine").state == "finished"
    assert server.log("fine", "out").split() == ["first", "second", "closed"]  # exit handlers as in any program

    server.start("wrong")
    ended = server.end_of("wrong")
    assert (ended.state, ended.restarts) == ("failed", 0)  # a person has to mend it: not tried again
    assert "no such file" in ended.message
    assert "fix: make it" in ended.message

    server.start("long")
    _wait_until(lambda: "begun" in server.log("long", "out"))
    server.tell(StopWorkers(run="long"))
    assert server.end_of("long").state == "stopped"

    server.start("long")
    assert server.hear().state == "running"
    workers = psutil.Process(server.process.pid).children()
    assert len(workers) == 1
    server.tell(EndWithin(step_s=1.0))
    server.process.stdin.close()
    assert server.process.wait(20) == 0
    assert not workers[0].is_running()


def test_the_end_of_a_fork_server_is_told_whatever_its_last_line_was(monkeypatch, tmp_path):
    cut_off = tmp_path / "python"
    cut_off.write_text('#!/bin/sh\nprintf \'{"type": "Wor\'\n')
    cut_off.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(cut_off))
    posted = queue.SimpleQueue()
    client = ForkClient(posted.put)
    client.start()
    assert posted.get(timeout=20) == ForkServerEnded()
    client.send(StopWorkers(run="one"))
    client.close(0.0)


def _wait_until(condition, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
