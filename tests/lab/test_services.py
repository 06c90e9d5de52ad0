"""--service under a real systemd: it starts, comes back after a kill and a reboot, and leaves nothing when removed."""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from potluck.machine.unit_file import unit_text
from tests.lab.user_manager import UserManager, missing
from tests.unit.machine.test_unit_file import ODD

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(bool(missing()), reason=missing() or "-")]
POTLUCK = [sys.executable, "-m", "potluck"]


@pytest.fixture
def managers(tmp_path):
    """Two users, rosa and lily, each with a manager."""
    for name in ("rosa", "lily"):
        (tmp_path / name).mkdir()
    with UserManager(tmp_path / "rosa") as rosa, UserManager(tmp_path / "lily") as lily:
        yield rosa, lily


def wait_until(condition, complaint, timeout_s=90):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.2)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_systemd_hands_every_word_to_the_command_as_it_was_given(tmp_path):
    folder = tmp_path / "50% of it"
    folder.mkdir()
    code = "import json, os, sys; json.dump([sys.argv[1:], os.environ['ODD']], open('words.json', 'w'))"
    variables = {"ODD": " ".join(ODD)}
    with UserManager(tmp_path) as manager:
        units = tmp_path / ".config" / "systemd" / "user"
        units.mkdir(parents=True)
        text = unit_text("words", [sys.executable, "-c", code, *ODD], folder=folder, variables=variables)
        (units / "words.service").write_text(text)
        manager.run("systemctl", "--user", "daemon-reload")
        assert manager.run("systemctl", "--user", "start", "words.service") == (0, "")
        wait_until(lambda: (folder / "words.json").exists() and (folder / "words.json").read_text(), "nothing written")
        assert manager.has_own_cgroup()  # so it has moved no process but its own
    assert json.loads((folder / "words.json").read_text()) == [ODD, variables["ODD"]]


@pytest.mark.real_world
def test_a_host_and_a_machine_stay_after_a_kill_and_a_reboot_and_are_removed(managers):
    rosa, lily = managers

    def states():
        status, output = rosa.run(*POTLUCK, "status", "--json")
        return {one["machine"]: one["state"] for one in json.loads(output)["machines"]} if status == 0 else {}

    where = ["--address", "127.0.0.1", "--port", free_port(), "--no-mdns"]
    code, output = rosa.run(*POTLUCK, "host", "--service", "--name", "rosa", "--not-here", *where)
    assert code == 0, output
    assert "potluck-host.service: active (running), enabled" in output
    assert "loginctl enable-linger" in output
    line = next(part for part in output.split() if part.startswith("p1-"))
    unit = rosa.home / ".config" / "systemd" / "user" / "potluck-host.service"
    token = line.split("-", 3)[3]
    assert token not in unit.read_text()
    assert token not in (rosa.home / "manager.log").read_text()  # what a journal would have
    assert line in rosa.run(*POTLUCK, "service")[1]  # the line again, as often as it is needed

    code, output = lily.run(*POTLUCK, "join", line, "--name", "lily", "--devices", "cpu", "--service")
    assert code == 0, output
    assert "potluck-join.service: active (running), enabled" in output
    wait_until(lambda: states().get("lily") == "here", states)
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [command for command in commands if token.encode() in command]

    for manager, name in ((rosa, "potluck-host.service"), (lily, "potluck-join.service")):
        before = manager.main_pid(name)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda m=manager, n=name, b=before: m.main_pid(n) not in (0, b), "not started again")
    wait_until(lambda: states().get("lily") == "here", states)

    lily.reboot()
    wait_until(lambda: lily.main_pid("potluck-join.service") != 0, "not started with its user")
    wait_until(lambda: states().get("lily") == "here", states)

    # A second service of the other kind is refused, with what to type.
    code, output = lily.run(*POTLUCK, "host", "--service")
    assert code == 1
    assert "potluck service --remove" in output

    # A mistyped line leaves the service as it was; a machine that is sent away does not try again after a reboot.
    code, output = lily.run(*POTLUCK, "join", line[:-4], "--service")
    assert code == 1, output
    wait_until(lambda: states().get("lily") == "here", states)
    assert rosa.run(*POTLUCK, "leave", "lily")[0] == 0
    wait_until(lambda: lily.main_pid("potluck-join.service") == 0, "still there")
    assert "potluck-join.service: inactive (dead), disabled" in lily.run(*POTLUCK, "service")[1]

    for manager in (lily, rosa):
        code, output = manager.run(*POTLUCK, "service", "--remove")
        assert code == 0, output
        assert not list((manager.home / ".config" / "systemd" / "user").rglob("potluck-*"))
        code, output = manager.run(*POTLUCK, "service")
        assert code == 1
        assert "this user has no service of Potluck here" in output
