"""Prints a description of torch as one line of JSON: `python -m potluck.probes.torch_facts`.

It runs in a process of its own, because an import of torch may crash or hang.
"""

import json
from typing import Any

import torch
import torch.distributed as dist

from potluck.engine.compute.device import card_name


def describe_torch() -> dict[str, Any]:
    """Torch's version and build, and the devices that torch can use."""
    has_distributed = dist.is_available()
    num_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    has_nccl = bool(torch.version.cuda) and has_distributed and dist.is_nccl_available()
    devices = _devices()
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda or "",
        "hip": torch.version.hip or "",
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if has_nccl else "",  # type: ignore[no-untyped-call]
        "num_devices": num_devices,
        "devices": devices,
        "cards": {device: name for device in devices if (name := card_name(torch.device(device)))},
        "capabilities": [".".join(map(str, torch.cuda.get_device_capability(i))) for i in range(num_devices)],
        "architectures": torch.cuda.get_arch_list() if torch.version.cuda else [],
    }


def _devices() -> list[str]:
    """Accelerators of any kind; empty in releases of torch without torch.accelerator."""
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None or (kind := accelerator.current_accelerator(check_available=True)) is None:
        return []
    return [f"{kind.type}:{index}" for index in range(accelerator.device_count())]


if __name__ == "__main__":
    print(json.dumps(describe_torch()))  # noqa: T201  the process that asked reads it
