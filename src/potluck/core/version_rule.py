"""The rule by which versions on two machines fit together; admission and the doctor both follow this rule."""

import re
from enum import Enum

from potluck.core.version import FROM_THE_HOST

PACKAGES = ("potluck", "torch", "torchft", "python")
MOST_MINORS_APART = 2
"""How far apart Python and torch may be: each release may change numbers, and the more lie between, the more change."""
MAY_DIFFER = ("torch", "python")
_TITLES = {"python": "Python"}
_MAJOR_AND_MINOR = re.compile(r"(\d+)\.(\d+)")


class Fit(Enum):
    """How the versions of one package on two machines fit together."""

    EQUAL = "equal"
    CHECKED = "checked"
    """They may differ, if a parity check at admission finds that both machines compute the same."""
    REFUSED = "refused"


def judge(package: str, own: str, other: str) -> Fit:
    """Potluck's versions must be equal, torchft's up to the minor, Python's and torch's within two minors."""
    if package == "potluck":
        return Fit.EQUAL if _release(own) == _release(other) else Fit.REFUSED
    first, second = _MAJOR_AND_MINOR.match(own), _MAJOR_AND_MINOR.match(other)
    if first is None or second is None:
        return Fit.REFUSED
    if first.groups() == second.groups():
        return Fit.EQUAL
    apart = abs(int(first[2]) - int(second[2]))
    is_near = first[1] == second[1] and apart <= MOST_MINORS_APART
    return Fit.CHECKED if package in MAY_DIFFER and is_near else Fit.REFUSED


def title(package: str) -> str:
    """The package's name in a sentence."""
    return _TITLES.get(package, package)


def fix_commands(package: str, wanted: str, have: str, *, install: str = "") -> tuple[str, ...]:
    """Commands that bring this package to the wanted version.

    `install` installs the host's Potluck; where it is not known, there are none for Potluck, see `fix_in_words`.
    """
    if package == "python":
        minor = ".".join(wanted.split(".")[:2])
        folder = f"potluck-python{minor}"
        return (f"python -m pip install uv && uv venv --seed --python {minor} {folder} && . {folder}/bin/activate",)
    if package == "potluck":
        return (install,) if install else ()
    # Without the index of CPU builds, pip would replace a CPU build by gigabytes of CUDA.
    index = " --index-url https://download.pytorch.org/whl/cpu" if package == "torch" and "+cpu" in have else ""
    return (f"python -m pip install '{package}=={_release(wanted)}'{index}",)


def fix_in_words(package: str, wanted: str, have: str, *, install: str = "") -> str:
    """The fix as one line of text; `install` is the command that installs the host's Potluck, where it is known."""
    commands = fix_commands(package, wanted, have, install=install)
    if package == "python":
        if install:
            return f"{' && '.join([*commands, install])}, then join again"
        return f"{' && '.join(commands)}, then {FROM_THE_HOST}"
    if package == "potluck":
        return other_potluck(install)
    return " && ".join(commands)


def other_potluck(install: str) -> str:
    """How a machine that has another version of Potluck gets the host's."""
    return f"in the environment that has Potluck: {install}, then join again" if install else FROM_THE_HOST


def _release(version: str) -> str:
    """The version without its build: +cpu and +cu126 of one version train together."""
    return version.partition("+")[0]
