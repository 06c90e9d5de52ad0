"""Which device a worker trains on."""

import torch

from potluck.core.errors import SettingsError


def choose_device(name: str | None, local_rank: int = 0) -> torch.device:
    """The device of that name; without a name this machine's next accelerator if it has one, else the CPU."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if name is None:
        if accelerator is None:
            return torch.device("cpu")
        return torch.device(accelerator.type, local_rank % torch.accelerator.device_count())
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SettingsError(f"{name!r} names no kind of device", fix="use --device cpu, cuda or cuda:0") from None
    if device.type == "cpu":
        return device
    if accelerator is None or accelerator.type != device.type:
        raise SettingsError(
            f"this machine's torch {torch.__version__} sees no {device.type} device",
            fix="use --device cpu, or install a torch build that supports the device",
        )
    if (device.index or 0) >= torch.accelerator.device_count():
        raise SettingsError(
            f"there is no {device}: this machine has {torch.accelerator.device_count()} {device.type} devices",
            fix=f"use --device {device.type}:0",
        )
    return device
