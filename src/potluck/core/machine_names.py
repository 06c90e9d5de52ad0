"""Names of machines as a user types them: `--machines rosa,lily`, `--keep rosa --keep lily`."""

import re
from collections.abc import Iterable

from potluck.core.errors import SettingsError

MACHINE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"


def split_names(words: Iterable[str]) -> list[str]:
    """The names in words like "rosa,lily" and "fern", each once."""
    names = (name.strip() for word in words for name in word.split(","))
    return list(dict.fromkeys(name for name in names if name))


def read_machine_names(words: Iterable[str], source: str) -> list[str]:
    """The machines' names in the words; SettingsError for one that no machine can have. `source`: the option."""
    names = split_names(words)
    for name in names:
        if not re.fullmatch(MACHINE_NAME, name):
            raise SettingsError(
                f"{source} cannot be {name!r}: no machine is called that",
                fix="write names as potluck status lists them, with commas between them: rosa,lily",
            )
    return names
