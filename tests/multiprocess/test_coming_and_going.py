"""Leaving and coming back with the real commands: it works at once, or says at once what to type."""

import signal
import time

import pytest

from tests.multiprocess.command import Command
from tests.multiprocess.test_meeting_door import RealHost, free_port

pytestmark = pytest.mark.timeout(240)
AT_ONCE_S = 30.0  # a process that starts on a busy machine, and no waiting


@pytest.fixture
def host(workplace):
    held = RealHost(free_port())
    yield held
    held.end()


def come_back(home="lily"):
    """A bare `potluck join`."""
    return Command("join", "--devices", "cpu", home=home)


def leave(joined):
    joined.signal(signal.SIGINT)
    code, output = joined.finish(60)
    assert code == 0, output
    return output


def test_leaving_by_oneself_needs_no_line_and_being_sent_away_does(host):
    lily = Command("join", host.invitation, "--name", "lily", "--devices", "cpu", home="lily")
    lily.wait_for("waiting for work")
    host.wait_for("lily is here")

    # With Ctrl-C, and with `potluck leave` on the machine itself.
    assert "left rosa; come back with: potluck join" in leave(lily)
    lily = come_back()
    lily.wait_for("waiting for work")
    code, output = Command("leave", home="lily").finish(60)
    assert (code, output) == (0, "lily leaves; come back with: potluck join\n")
    code, output = lily.finish(60)
    assert "left rosa; come back with: potluck join" in output
    lily = come_back()
    lily.wait_for("waiting for work")

    # While it is joined, it can be no host, and a host can join nobody.
    code, output = Command("host", "--no-mdns", "--address", "127.0.0.1", "--port", free_port(), home="lily").finish(60)
    assert code == 1
    assert "this machine is joined to rosa (127.0.0.1) as lily" in output
    code, output = Command("join", host.invitation, "--name", "other").finish(60)
    assert code == 1
    assert "this machine is a host itself" in output

    # Sent away: the machine says what it takes to come back, and forgets the host.
    code, output = Command("leave", "lily").finish(60)
    assert (code, output) == (0, "lily leaves; to come back it needs the line that potluck host prints on rosa\n")
    code, output = lily.finish(60)
    assert code == 0
    assert "rosa has sent this machine away; to come back, paste the line that potluck host prints there" in output
    assert not list((host.folder / "lily").glob("joined.json"))


def test_a_machine_that_was_taken_off_the_roster_in_its_absence_is_told_at_once(host):
    lily = Command("join", host.invitation, "--name", "lily", "--devices", "cpu", home="lily")
    lily.wait_for("waiting for work")
    leave(lily)
    assert Command("leave", "lily").finish(60)[0] == 0
    asked_at = time.monotonic()
    code, output = come_back().finish(60)
    assert code == 1
    assert time.monotonic() - asked_at < AT_ONCE_S
    assert "rosa does not know lily any more: it was taken off the roster there" in output
    assert "paste the line that potluck host prints on rosa: potluck join p1-..." in output
    assert "joined rosa" not in output
