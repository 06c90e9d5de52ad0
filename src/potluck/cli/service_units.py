"""A host or a joined machine as a service of systemd: made by --service, shown and removed by `potluck service`."""

import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from potluck.cli.saying import say
from potluck.core.environment import read_service_variables, read_wsl_distribution
from potluck.core.errors import ServiceError
from potluck.machine.systemd import UserUnit, check_manager, lingers
from potluck.machine.unit_file import unit_text
from potluck.machine.wsl import is_wsl
from potluck.meeting.home import Home

HOST, JOIN = UserUnit("potluck-host.service"), UserUnit("potluck-join.service")
_DESCRIPTIONS = {HOST: "Potluck host: the meeting point of machines that train together", JOIN: "Potluck machine"}
_START_S = 90.0
_LOOK_S = 0.2


def as_words(options: Mapping[str, object]) -> list[str]:
    """Options as words of a command, without those that were not given."""
    return [word for option, value in options.items() if value is not None for word in (option, str(value))]


@contextmanager
def replacing(unit: UserUnit, command: str) -> Iterator[None]:
    """Check that a service can be made here, and stop an earlier one; if its successor fails, the earlier goes on."""
    check_manager(command)
    other = JOIN if unit == HOST else HOST
    if other.file.exists():
        raise ServiceError(
            f"{other.name} is this machine's service already, and a machine is a host or joins one",
            fix="potluck service --remove, then type this again",
        )
    before = unit.file.read_text(encoding="utf-8") if unit.file.exists() else None
    if before is not None:
        unit.stop()
    try:
        yield
    except BaseException:
        if before is not None:
            unit.write(before)
            unit.start()
        raise


def install(unit: UserUnit, words: Sequence[str], home: Home) -> None:
    """Write the unit for `potluck WORDS`, start it, and show it once it works."""
    text = unit_text(
        _DESCRIPTIONS[unit],
        [sys.executable, "-m", "potluck", *words],
        folder=Path.cwd(),
        variables=read_service_variables(),
    )
    home.invitation_file.unlink(missing_ok=True)
    unit.write(text)
    unit.start()
    _wait_for_start(unit, home.invitation_file.exists if unit == HOST else home.has_agent)
    show(unit, home)


def _wait_for_start(unit: UserUnit, is_up: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _START_S
    while not is_up():
        state = unit.state()
        has_failed = state["ActiveState"] == "failed" or state["SubState"] == "auto-restart"
        if has_failed or time.monotonic() > deadline:
            said = "\n".join(unit.last_lines(6))
            raise ServiceError(
                f"{unit.name} does not start{': ' if said else ''}{said}",
                fix=f"see: systemctl --user status {unit.name}; remove it: potluck service --remove",
            )
        time.sleep(_LOOK_S)


def installed() -> list[UserUnit]:
    """The units of this user that Potluck has written."""
    return [unit for unit in (HOST, JOIN) if unit.file.exists()]


def show(unit: UserUnit, home: Home) -> None:
    """Print the unit's state, its files, what keeps it up, and a host's lines to paste."""
    state = unit.state()
    again = f", started again {state['NRestarts']} times" if state["NRestarts"] not in ("", "0") else ""
    say(f"{unit.name}: {state['ActiveState']} ({state['SubState']}), {state['UnitFileState']}{again}")
    say(f"  file    {unit.file}")
    say(f"  output  journalctl --user --unit {unit.name} --follow")
    say("  remove  potluck service --remove")
    for line in keeping_lines():
        say(line)
    if unit == HOST and home.invitation_file.exists():
        say(home.invitation_file.read_text(encoding="utf-8").rstrip())


def keeping_lines() -> list[str]:
    """What this machine still needs so that the service is back after a reboot, with the commands."""
    lines = []
    if not lingers():
        lines.append(
            "It ends when you log out, and after a reboot it starts when you log in. To have it start with the "
            "machine, type: loginctl enable-linger"
        )
    if is_wsl(platform.release()):
        name = read_wsl_distribution() or "Ubuntu"
        lines += [
            "Windows ends this distribution, and the service with it, when no window of it is open. To keep it: put "
            "instanceIdleTimeout=-1 under [general] in %UserProfile%\\.wslconfig, then in PowerShell: wsl --shutdown",
            "To start it when you log in to Windows, in PowerShell as administrator: "
            f"schtasks /Create /TN Potluck /SC ONLOGON /TR 'wsl.exe --distribution {name} --exec /bin/true'",
        ]
    return lines
