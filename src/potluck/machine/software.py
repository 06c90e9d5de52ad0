"""Versions of what training needs. Torch is imported by another process: it may crash, hang, or take seconds."""

import json
import platform
import sys
from importlib import metadata

import msgspec

from potluck.core.version import __version__
from potluck.machine.asking import NoAnswerError, ask
from potluck.machine.facts import Software, Torch

_IMPORT_S = 60.0
_QUESTION = """
import json, torch, torch.distributed as dist
cuda = torch.cuda.is_available()
nccl = ""
if torch.distributed.is_available() and dist.is_nccl_available() and torch.version.cuda:
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
print("\\n" + json.dumps({
    "version": torch.__version__, "cuda": torch.version.cuda or "", "hip": torch.version.hip or "",
    "nccl": nccl, "has_gloo": dist.is_available() and dist.is_gloo_available(),
    "num_devices": torch.cuda.device_count() if cuda else 0,
    "capabilities": [".".join(map(str, torch.cuda.get_device_capability(i)))
                     for i in range(torch.cuda.device_count() if cuda else 0)],
    "architectures": torch.cuda.get_arch_list() if torch.version.cuda else [],
}))
"""


def read_software(*, with_torch: bool = True) -> Software:
    """Versions; without `with_torch` torch's comes from its metadata alone, which takes no time."""
    version = _version("torch")
    torch: Torch | None = None
    if version:
        torch = ask_torch(version) if with_torch else Torch(version=version)
    return Software(python=platform.python_version(), potluck=__version__, torch=torch, torchft=_version("torchft"))


def ask_torch(version: str) -> Torch:
    """What torch says of itself, or the last line of why it cannot be imported."""
    try:
        lines = ask([sys.executable, "-c", _QUESTION], timeout_s=_IMPORT_S).strip().splitlines()
        told = json.loads(lines[-1])
    except NoAnswerError as error:
        return Torch(version=version, error=str(error).partition(": ")[2] or str(error))
    except (ValueError, IndexError):
        return Torch(version=version, error="its import ended without an answer")
    return msgspec.convert(told, Torch)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
