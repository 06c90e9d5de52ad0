"""A process with many connections may have as many as the system lets it, and says once when these are used up."""

import errno
import os
import resource

from potluck.gates.entrance import Entrance
from potluck.gates.file_limit import raise_file_limit
from potluck.meeting.host.troubles import Troubles

USED_UP = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_the_limit_is_raised_to_what_the_system_allows():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_gate_and_a_host_without_file_descriptors_say_it_once_with_the_fix(capsys):
    entrance = Entrance([], members=lambda: None, service=lambda: None, let_in=None, serve=None, hand_out=None)
    told = []
    troubles = Troubles(told.append)
    for _ in range(1000):
        entrance._note(USED_UP)
        entrance._note(OSError(errno.ECONNABORTED, "gone"))
        troubles.note("socket.accept() out of system resource", USED_UP)
    printed = capsys.readouterr().err
    assert printed.count("potluck gate:") == len(told) == 1
    assert "ulimit -n" in printed
    assert "ulimit -n" in told[0]
