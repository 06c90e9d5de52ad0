"""Programs outside Potluck that use a graphics card, as NVML lists them."""

import re
from typing import Any

from potluck.machine.card_meter import ask_nvml
from potluck.machine.facts import CardProgram

_OWN = re.compile(r"potluck(\.[A-Za-z_.]+)?")  # the command, and modules that Potluck starts with -m


def read_programs(handle: Any) -> tuple[tuple[CardProgram, ...] | None, bool]:
    """The card's programs, the one with the most memory first, and whether a process of Potluck uses the card.

    The programs are None where the driver does not list them.
    """
    lists = [ask_nvml(f"nvmlDeviceGet{kind}RunningProcesses", handle) for kind in ("Compute", "Graphics")]
    if all(found is None for found in lists):
        return None, False
    used: dict[int, int] = {}
    for process in [one for found in lists for one in found or ()]:
        used[process.pid] = max(used.get(process.pid, 0), int(process.usedGpuMemory or 0))
    names = {pid: _foreign_name(pid) for pid in used}
    programs = [
        CardProgram(pid=pid, name=name, memory_bytes=used[pid]) for pid, name in names.items() if name is not None
    ]
    return tuple(sorted(programs, key=lambda one: -one.memory_bytes)), None in names.values()


def _foreign_name(pid: int) -> str | None:
    """The program's name; None if Potluck started the process."""
    import psutil  # noqa: PLC0415  only the commands that need facts pay for the import

    try:
        process = psutil.Process(pid)
        family = [process, *process.parents()]
        if any(_OWN.fullmatch(word) for one in family for word in _words(one)):
            return None
        return str(process.name())
    except psutil.Error:  # it has ended, or belongs to another user or to the computer around this container
        return "another program"


def _words(process: Any) -> list[str]:
    """The words of a process's command that say what it is: the program, and a module or script, without folders."""
    import psutil  # noqa: PLC0415

    try:
        command = process.cmdline()[:3]
    except psutil.Error:
        return []
    return [word.rpartition("/")[2] for word in command]
