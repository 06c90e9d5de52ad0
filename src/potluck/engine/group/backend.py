"""Chooses Gloo or NCCL, by what all workers have."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from potluck.core.errors import GroupError, SettingsError, did_you_mean

BACKENDS = ("auto", "gloo", "nccl")


def check_backend(name: str) -> str:
    """The name, if it is a backend's; raises SettingsError otherwise."""
    if name not in BACKENDS:
        raise SettingsError(f"backend cannot be {name!r}", fix=did_you_mean(name, BACKENDS))
    return name


def own_nccl(device: torch.device) -> str:
    """The version of NCCL that a worker on this device could use; empty if it cannot use NCCL."""
    if device.type != "cuda" or not dist.is_nccl_available():
        return ""
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]


def choose_backend(wanted: str, nccl_versions: Sequence[str]) -> str:
    """The backend that the user wants; for `auto`, NCCL if every worker has the same version of it, else Gloo."""
    all_agree = all(nccl_versions) and len(set(nccl_versions)) == 1
    if wanted == "nccl" and not all_agree:
        have = ", ".join(version or "none" for version in nccl_versions)
        raise GroupError(
            f"NCCL is asked for, but the workers have: {have}",
            fix="leave --backend out, or install the same CUDA build of torch on machines with an NVIDIA GPU each",
        )
    if wanted == "auto":
        return "nccl" if all_agree else "gloo"
    return wanted
