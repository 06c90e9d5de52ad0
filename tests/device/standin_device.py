"""Registers the stand-in accelerator with torch; `import torch` does this by the entry point `torch.backends`.

`building.py` puts this module beside the compiled library, with the entry point, into a folder for PYTHONPATH.
"""

import ctypes
from functools import cache, wraps
from pathlib import Path
from types import SimpleNamespace

import torch

NAME = "standin"
_LIBRARY = Path(__file__).with_name("standin.so")


def register() -> None:
    """Called by torch at the end of its own import, in every process."""
    torch.utils.rename_privateuse1_backend(NAME)
    torch.ops.load_library(str(_LIBRARY))
    torch._register_device_module(NAME, _Module)
    torch.utils.generate_methods_for_privateuse1_backend()
    # Without this, module.to(device) makes new Parameters, and an optimizer made before would train the old ones.
    torch.__future__.set_swap_module_params_on_conversion(True)
    # load_state_dict heeds the same setting, and fails with it under DDP: there it copies, as for any other device.
    torch.nn.Module.load_state_dict = _without_swapping(torch.nn.Module.load_state_dict)  # type: ignore[method-assign]


def _without_swapping(load):
    @wraps(load)
    def load_by_copying(*args, **kwargs):
        torch.__future__.set_swap_module_params_on_conversion(False)
        try:
            return load(*args, **kwargs)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(True)

    return load_by_copying


class _Module:
    """What torch asks of `torch.standin`."""

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def is_initialized() -> bool:
        return True

    @staticmethod
    def _lazy_init() -> None:
        pass

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def device_count() -> int:
        return 2

    @staticmethod
    def get_device_properties(device: object = None) -> SimpleNamespace:
        return SimpleNamespace(name="Maker Stand-In 1", uuid=f"00000000-0000-0000-0000-00000000000{_index(device)}")

    @staticmethod
    def current_device() -> int:
        return torch.accelerator.current_device_index()

    @staticmethod
    def set_device(device: int) -> None:
        torch.accelerator.set_device_index(device)

    device = torch.accelerator.device_index

    @staticmethod
    def synchronize(device: object = None) -> None:
        torch.accelerator.synchronize(device)

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    @staticmethod
    def manual_seed(seed: int) -> None:
        _generator(torch.accelerator.current_device_index()).manual_seed(seed)

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        for index in range(2):
            _generator(index).manual_seed(seed)

    @staticmethod
    def get_rng_state(device: object = NAME) -> torch.Tensor:
        return _generator(_index(device)).get_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, device: object = NAME) -> None:
        _generator(_index(device)).set_state(state)


def _index(device: object) -> int:
    index = device if isinstance(device, int) else torch.device(device).index  # type: ignore[arg-type]
    return torch.accelerator.current_device_index() if index is None else index


@cache
def _generator(index: int) -> torch.Generator:
    """Its state can be kept and restored; the operators themselves draw from the CPU's generator."""
    return torch.Generator(device=f"{NAME}:{index}")


def library() -> ctypes.CDLL:
    """The library's own functions, for tests: slowness, memory limit, rate of copies."""
    return ctypes.CDLL(str(_LIBRARY))
