"""What `--devices` means on every command: how many devices of this machine train, or which."""

import re
from collections.abc import Callable

from potluck.core.errors import SettingsError
from potluck.core.words import counted
from potluck.machine.software import find_devices

_NAME = re.compile(r"[a-z][a-z0-9_]*(:[0-9]+)?")


def read_devices(text: str, find: Callable[[], list[str]] = lambda: find_devices()[0]) -> list[str]:
    """The devices, one worker each: the first ones for a number, else names like cuda:0,cpu; a name may be repeated."""
    words = [word.strip() for word in text.split(",")]
    if len(words) == 1 and words[0].isascii() and words[0].isdigit():
        return _first(int(words[0]), find())
    for word in words:
        if not _NAME.fullmatch(word):
            raise SettingsError(
                f"--devices {text}: {word!r} names no device",
                fix="give a number of devices, like --devices 2, or their names, like --devices cuda:0,cpu",
            )
    return words


def _first(number: int, found: list[str]) -> list[str]:
    if 1 <= number <= len(found):
        return found[:number]
    has = f"this machine has {counted(len(found), 'device')}: {', '.join(found)}"
    if number < 1:
        raise SettingsError(f"--devices {number} leaves nothing to train on; {has}", fix="--devices 1")
    more = ", or two workers on the CPU: --devices cpu,cpu" if found == ["cpu"] else ""
    raise SettingsError(f"--devices {number} are too many: {has}", fix=f"--devices {len(found)}{more}")
