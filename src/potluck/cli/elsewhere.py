"""Refuses the commands that train, or talk to machines that train, on systems for which torchft has no build."""

import sys

from potluck.core.errors import UsageError

# They read files or look at this computer, and work on every system.
_EVERYWHERE = frozenset({"doctor", "explain", "runs", "report", "compare"})


def check_trains_here(command: str | None, system: str = sys.platform) -> None:
    """Raise UsageError if this system is not Linux and the command needs it to be; `system` is Python's name for it."""
    if system.startswith("linux") or command is None or command in _EVERYWHERE:
        return
    if system == "win32":
        raise UsageError(
            f"potluck {command} runs inside WSL2, and this is Python on Windows itself",
            fix="potluck doctor --check windows-native prints the lines that install WSL2; see docs/windows.md",
        )
    raise UsageError(
        f"potluck {command} runs on Linux, and this is {system}: torchft has no build for it",
        fix="use a machine with Linux, or a container: see docs/containers.md",
    )
