"""The command line, as a person meets it."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Lab

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(60)]

REPOSITORY = Path(__file__).parents[2]


def lab_command(*arguments: str, prefix: tuple[str, ...] = ()) -> tuple[int, str]:
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "lab", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def laptops() -> Iterator[Lab]:
    with Lab("laptops") as lab:
        yield lab


def test_run_runs_one_command_and_returns_its_status() -> None:
    assert lab_command("run", "lab/clusters/laptops.yaml", "--on", "lily", "--", "hostname") == (0, "lily\n")
    status, output = lab_command("run", "laptops", "--on", "fern", "--", "sh", "-c", "echo no >&2; exit 3")
    assert (status, output) == (3, "no\n")


TRAP = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize(("number", "status", "last"), [(signal.SIGINT, 7, "caught\n"), (signal.SIGTERM, 143, "")])
def test_a_signal_to_run_reaches_the_program_or_ends_it(number: signal.Signals, status: int, last: str) -> None:
    command = [sys.executable, "-m", "lab", "run", "laptops", "--on", "lily", "--", "sh", "-c", TRAP]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.communicate(timeout=8)[0] == last
    assert process.returncode == status


def test_verbs_act_on_the_lab_that_is_up(laptops: Lab) -> None:
    name, lily = laptops.name, laptops["lily"]

    def verb(*arguments: str) -> str:
        status, output = lab_command(*arguments, "--lab", name)
        assert status == 0, output
        return output

    assert "10.77.0.2/24" in lab_command("exec", "lily", "--lab", name, "--", "ip", "addr")[1]
    assert verb("slow", "lily", "0.1") == "lily has 0.1 cores\n"
    assert lily.cores() == pytest.approx(0.1)
    assert verb("cut", "lily") == "lily is cut off\n"
    assert lily.is_cut()
    assert verb("freeze", "lily") == "lily is frozen\n"
    assert lily.is_frozen()
    shown = json.loads(verb("show", "--json"))
    assert [machine["condition"] for machine in shown["machines"]] == ["up", "frozen+cut", "up"]
    assert verb("thaw", "lily") == "lily goes on\n"
    assert verb("mend", "lily") == "lily is connected\n"
    process = lily.start(["sleep", "1000"])
    assert verb("kill", "lily") == "lily: 1 process killed\n"
    assert process.wait(5) == -signal.SIGKILL
    assert "rosa" in verb("show")
    assert verb("down") == f"lab {name} is down\n"


MISTAKES = [
    (("up", "laptop"), "no cluster is called 'laptop'", "did you mean 'laptops'?"),
    (("up", "none.yaml"), "none.yaml: No such file or directory", "give the path of a cluster file"),
    (("run", "laptops", "--on", "lilly", "--", "true"), "no machine is called 'lilly'", "did you mean 'lily'?"),
    (("exec", "lily", "--lab", "nowhere", "--", "true"), "'nowhere'", ""),
]


@pytest.mark.parametrize(("arguments", "what", "fix"), MISTAKES)
def test_a_mistake_is_answered_with_a_fix_and_no_traceback(arguments: tuple[str, ...], what: str, fix: str) -> None:
    status, output = lab_command(*arguments)
    if what == "'nowhere'" and "no lab is up" in output:
        what, fix = "no lab is up", "python -m lab up laptops"
    assert status == 1
    assert what in output
    assert fix in output
    assert "Traceback" not in output


def test_a_wrong_cluster_file_names_the_key_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "home.yaml"
    file.write_text("machines:\n  - {name: rosa, coers: 0.8}\n")
    status, output = lab_command("up", str(file))
    assert (status, "Traceback" in output) == (1, False)
    assert f"error: {file}: machines[0].coers is not a key\n  fix: did you mean 'cores'?" in output


def test_without_root_it_says_so() -> None:
    # It may read every file, as this checkout and its environment may be closed to others, and nothing else.
    may_read = "-all,+dac_read_search"
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    nobody = (*nobody, f"--inh-caps={may_read}", f"--ambient-caps={may_read}")
    for arguments in (("up", "laptops"), ("down",), ("exec", "lily", "--", "true"), ("show",)):
        status, output = lab_command(*arguments, prefix=nobody)
        assert (status, output) == (1, "error: the lab needs root\n  fix: put sudo in front: sudo python -m lab ...\n")


def test_in_a_container_without_rights_it_says_so() -> None:
    contained = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-all")
    status, output = lab_command("up", "laptops", prefix=contained)
    assert status == 1
    assert output.startswith("error: the lab needs CAP_SYS_ADMIN and CAP_NET_ADMIN, which this container lacks\n")


def test_in_a_terminal_the_table_is_live_and_ctrl_c_ends_it() -> None:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "lab", "up", "laptops"],
        cwd=REPOSITORY,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
        start_new_session=True,
    )
    os.close(follower)
    seen = ""
    deadline = time.monotonic() + 20
    while seen.count("Mbit/s out") < 3 and time.monotonic() < deadline:
        seen += os.read(leader, 10_000).decode()
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # ends when the other end is closed
        while True:
            seen += os.read(leader, 10_000).decode()
    os.close(leader)
    assert process.wait(10) == 130
    assert all(word in seen for word in ("rosa", "10.77.0.2", "0.00/0.4", "taking lab laptops", "down"))
    assert "…" not in seen, "the table does not fit 80 columns"
