"""Environment variables that a user gives to all workers of a run: `--env NAME=VALUE`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from potluck.core.errors import SettingsError

MOST_VARIABLES = 100
HIDDEN = "..."
"""Stands for a secret value wherever a run is shown."""
_MOST_CHARACTERS = 4000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = re.compile(  # all of Potluck's own but the one that `potluck run --no-tuning` gives to all workers
    r"POTLUCK_(?!TUNING$).*|TORCHELASTIC_.*|(LOCAL_|GROUP_|NODE_|ROLE_)?RANK|(LOCAL_|GROUP_|ROLE_)?WORLD_SIZE|MASTER_(ADDR|PORT)"
)
_DEVICES = re.compile(r"(CUDA|HIP|ROCR|GPU)_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK|ONEAPI_DEVICE_SELECTOR")
# The dynamic linker, Python, libc, OpenMP and torch read these once, when they are loaded.
_READ_AT_START = re.compile(
    r"(LD|OMP|GOMP|KMP|MKL|MALLOC|DYLD)_.*|PYTHON[A-Z]*|GLIBC_TUNABLES|ATEN_CPU_CAPABILITY|"
    r"TORCH_(LOGS|CPP_LOG_LEVEL|DISTRIBUTED_DEBUG|DEVICE_BACKEND_AUTOLOAD)|RUST_LOG"
)
_SECRET = re.compile("TOKEN|KEY|SECRET|PASSWORD", re.IGNORECASE)


def parse_variables(words: Sequence[str], source: str = "--env") -> dict[str, str]:
    """The variables in words like NCCL_DEBUG=INFO; SettingsError for one that cannot be given to all workers."""
    if len(words) > MOST_VARIABLES:
        raise SettingsError(f"{source} names {len(words)} variables", fix=f"give at most {MOST_VARIABLES}")
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        _check(word, name, equals, value, source)
        if name in found and found[name] != value:
            told = [show_word(f"{name}={one}") for one in (found[name], value)]
            raise SettingsError(f"{source} gives {name} two values: {told[0]} and {told[1]}", fix="keep one")
        found[name] = value
    return found


def as_words(variables: Mapping[Any, Any]) -> list[str]:
    """A mapping of a YAML file as words like NCCL_DEBUG=INFO."""
    for name, value in variables.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise SettingsError(
                f"env gives {name} the value {value!r}", fix=f'write the text that the program expects: {name}: "1"'
            )
    return [f"{name}={value}" for name, value in variables.items()]


def show_word(word: str) -> str:
    """A word like NCCL_DEBUG=INFO for people to see: HF_TOKEN=... if the name says that the value is secret."""
    name, equals, _ = word.partition("=")
    return f"{name}={HIDDEN}" if equals and _SECRET.search(name) else word


def show_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run for people to see, without the secret values of its variables."""
    env = settings.get("env")
    if isinstance(env, Mapping):
        return {**settings, "env": dict(show_word(f"{name}={value}").split("=", 1) for name, value in env.items())}
    if isinstance(env, Sequence) and not isinstance(env, str):
        return {**settings, "env": [show_word(str(word)) for word in env]}
    return dict(settings)


def _check(word: str, name: str, equals: str, value: str, source: str) -> None:
    if not equals or not _NAME.fullmatch(name):
        raise SettingsError(
            f"{source} cannot be {show_word(word)[:80]!r}",
            fix="write NAME=VALUE, the name in letters, digits and _: --env NCCL_DEBUG=INFO",
        )
    if not value.isprintable() or len(value) > _MOST_CHARACTERS:
        raise SettingsError(
            f"the value of {name} has control characters, or more than {_MOST_CHARACTERS} characters",
            fix="write it in one line of printable characters, or read it from a file in the script",
        )
    if _PLACE.fullmatch(name):
        raise SettingsError(
            f"{source} cannot set {name}: Potluck sets it, and each worker has its own value",
            fix=f"leave {name} out",
        )
    if _DEVICES.fullmatch(name):
        raise SettingsError(
            f"{source} cannot set {name}: each machine has devices of its own, counted when it joins",
            fix="choose them on that machine: potluck join --devices cuda:0",
        )
    if _READ_AT_START.fullmatch(name):
        raise SettingsError(
            f"{source} cannot set {name}: it is read when Python and torch are loaded, and workers are forked from a "
            "process that has loaded both",
            fix=f"on each machine: export {name}=... before potluck join (threads: potluck join --threads 4); "
            "with --solo, before the command",
        )
