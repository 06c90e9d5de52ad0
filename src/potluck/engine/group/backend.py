"""The backends that a user may ask for."""

from potluck.core.errors import SettingsError, did_you_mean

BACKENDS = ("auto", "gloo", "nccl")


def check_backend(name: str) -> str:
    """The name, if it is a backend's; raises SettingsError otherwise."""
    if name not in BACKENDS:
        raise SettingsError(f"backend cannot be {name!r}", fix=did_you_mean(name, BACKENDS))
    return name
