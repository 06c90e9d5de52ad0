"""Versions of what training needs. Another process imports torch: the import may crash, hang, or take seconds."""

import platform
import sys
from importlib import metadata

import msgspec

from potluck.core.version import __version__
from potluck.machine.asking import NoAnswerError, ask
from potluck.machine.facts import Software, Torch

_IMPORT_S = 60.0
_DESCRIBE = [sys.executable, "-m", "potluck.probes.torch_facts"]


def read_software(*, with_torch: bool = True) -> Software:
    """Software versions; without `with_torch`, torch's version comes from its metadata alone, which takes no time."""
    version = _version("torch")
    torch: Torch | None = None
    if version:
        torch = ask_torch(version) if with_torch else Torch(version=version)
    return Software(python=platform.python_version(), potluck=__version__, torch=torch, torchft=_version("torchft"))


def find_devices() -> tuple[list[str], dict[str, str]]:
    """This machine's accelerators, else cpu, and the names of their cards by device.

    Another process imports torch to find them, unless it is a CPU build to which no package adds an accelerator.
    """
    version = _version("torch")
    is_without = "+cpu" in version and not metadata.entry_points(group="torch.backends")
    found = Torch() if is_without else ask_torch(version)
    return list(found.devices) or ["cpu"], found.cards


def name_cards() -> dict[str, str]:
    """The names of this machine's cards by device, where torch knows them; another process imports torch."""
    return ask_torch(_version("torch")).cards


def ask_torch(version: str) -> Torch:
    """Torch's description of itself, or the last line of the error of its import."""
    try:
        return msgspec.json.decode(ask(_DESCRIBE, timeout_s=_IMPORT_S).strip().splitlines()[-1], type=Torch)
    except NoAnswerError as error:
        return Torch(version=version, error=str(error).partition(": ")[2] or str(error))
    except (ValueError, IndexError):
        return Torch(version=version, error="its import ended without an answer")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
