"""Chooses the device that a worker trains on, and the number of threads."""

import torch

from potluck.core.cards import labels
from potluck.core.errors import SettingsError
from potluck.core.words import counted
from potluck.machine.hardware import quota_threads


def choose_device(name: str | None, local_rank: int = 0, launched: str | None = None) -> torch.device:
    """The device called `name`; without a name, the accelerator for this local rank, or the CPU if there is none.

    A name without a number (cuda) is the device of that kind that this worker was launched for, else the one for this
    local rank: a machine's second worker must not take the first worker's device.
    """
    if launched is not None and name in (None, launched.partition(":")[0]):
        name = launched
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
        found = counted(torch.accelerator.device_count(), f"{device.type} device")
        raise SettingsError(
            f"there is no {device}: this machine has {found}",
            fix=f"use --device {device.type}:0",
        )
    return device if ":" in name else choose_device(None, local_rank)


def card_name(device: torch.device) -> str:
    """The name of the device's card, as torch tells it; empty for the CPU, and where torch does not know a name."""
    return str(_property(device, "name") or "")


def card_label(device: torch.device) -> str:
    """What people call the device: RTX 3070, or RTX 3070 (1 of 2) if this machine has two; empty if not known."""
    if device.type == "cpu":
        return ""
    known = [torch.device(device.type, index) for index in range(torch.accelerator.device_count())]
    names = labels({str(one): card_name(one) for one in known})
    return names.get(f"{device.type}:{_index(device)}", "")


def card_id(device: torch.device) -> str:
    """The card's UUID, by which the driver's own tools name the same card; empty if torch does not know it."""
    return str(_property(device, "uuid") or "")


def _property(device: torch.device, name: str) -> object:
    if device.type == "cpu":
        return None
    try:
        return getattr(torch.get_device_module(device).get_device_properties(_index(device)), name, None)
    except (AttributeError, RuntimeError, AssertionError):  # a backend without names, or a driver that fails
        return None


def _index(device: torch.device) -> int:
    index: int | None = device.index
    return torch.accelerator.current_device_index() if index is None else index


def use_threads(told: int | None) -> None:
    """Use `told` threads; without `told`, no more than the container's CPU quota can keep busy.

    torch starts one thread per core; threads beyond the quota would wait for each other while the process is throttled.
    """
    most = quota_threads()
    if told is not None:
        torch.set_num_threads(told)
    elif most is not None and most < torch.get_num_threads():
        torch.set_num_threads(most)
