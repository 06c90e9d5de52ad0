"""Reads the options of a built-in training run from YAML files and flags, checks them, and prepares run.yaml."""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from potluck.core.errors import SettingsError, did_you_mean
from potluck.core.exchange_options import ExchangeValue, check_exchange_options
from potluck.core.machine_names import read_machine_names
from potluck.core.run_folder import RunFolder, find_run_folder, newest_run_folder
from potluck.core.run_options import TrainOptions
from potluck.core.run_variables import as_words, parse_variables
from potluck.core.yaml_file import read_yaml

# The folder has the name, and resuming and addresses concern a single start: whoever repeats a run chooses them anew.
_NOT_RECORDED = {"experiment_name", "resume", "resume_from", "master_addr", "master_port"}
_BATCH_KEYS = {"global_batch", "batch_size"}
_FIXED_IN_A_RUN = (
    *("model", "model_size", "dataset", "num_samples", "global_batch", "seed"),
    *("optimizer", "learning_rate", "lr_schedule", "momentum", "weight_decay", "mixed_precision"),
)
_ALIASES = {"lr": "learning_rate"}
_OPTIONS = TypeAdapter(TrainOptions)
_NAMES = frozenset(field.name for field in fields(TrainOptions))


def read_settings_file(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file; the SettingsError for a mistake names the key and the file."""
    content = read_yaml(path)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"{path} holds no settings", fix="write it as lines of `key: value`")
    values = {_field_name(str(key)): value for key, value in content.items()}
    if len(values) < len(content):
        raise SettingsError(f"{path} sets a key twice under two spellings", fix="keep one of them")
    make_settings(values, source=str(path))
    return values


def read_recorded_settings(path: Path) -> dict[str, Any]:
    """The settings in the run.yaml of a run of `potluck train`; SettingsError if a script started the run."""
    content = read_yaml(path)
    if isinstance(content, dict) and "script" in content:
        raise SettingsError(
            f"run {path.parent.name} was started by {content['script']}",
            fix=f"go on with: potluck run --solo --resume --experiment-name {path.parent.name} {content['script']}",
        )
    return read_settings_file(path)


def recorded_variables(folder: RunFolder) -> list[str]:
    """The variables that a script's run was started with, by its run.yaml."""
    return _recorded_words(folder, "env")


def recorded_keep(folder: RunFolder) -> list[str]:
    """The machines that a script's run was started with as --keep, by its run.yaml."""
    return read_machine_names(_recorded_words(folder, "keep"), f"keep in {folder.settings_file}")


def recorded_exchange(folder: RunFolder) -> dict[str, ExchangeValue]:
    """The options of the exchange that the command gave to a script's run, by its run.yaml."""
    content = read_yaml(folder.settings_file)
    found = content.get("command_options") if isinstance(content, dict) else None
    spelled = f"command_options in {folder.settings_file}: {{}}".format
    return check_exchange_options(found, spelled) if isinstance(found, dict) else {}


def _recorded_words(folder: RunFolder, key: str) -> list[str]:
    content = read_yaml(folder.settings_file)
    found = content.get(key) if isinstance(content, dict) else None
    return [str(word) for word in found] if isinstance(found, list) else []


def make_settings(values: dict[str, Any], *, source: str = "the command line") -> TrainOptions:
    """Checked options from plain values; the SettingsError for a wrong value names `source`."""
    wrong = [
        (f"unknown key {key!r} in {source}", did_you_mean(key, sorted(_NAMES))) for key in values if key not in _NAMES
    ]
    known = {key: value for key, value in values.items() if key in _NAMES}
    if isinstance(known.get("env"), dict):
        known["env"] = as_words(known["env"])
    match known.get("keep"):
        case str(word):
            known["keep"] = read_machine_names([word], f"keep in {source}")
        case [*words] if all(isinstance(word, str) for word in words):
            known["keep"] = read_machine_names(words, f"keep in {source}")
    if known.get("mixed_precision") is False:
        known["mixed_precision"] = "no"  # YAML reads a bare no as false
    try:
        settings = _OPTIONS.validate_python(known)
    except ValidationError as error:
        for problem in error.errors():
            key = str(problem["loc"][0])
            wrong.append((f"{key} in {source} cannot be {problem['input']!r}", f"{key}: {problem['msg'].lower()}"))
    if wrong:
        raise SettingsError("; ".join(what for what, _ in wrong), fix="; ".join(fix for _, fix in wrong))
    parse_variables(settings.env, "--env" if source == "the command line" else f"env in {source}")
    if settings.global_batch is not None and settings.batch_size is not None:
        raise SettingsError(
            "both global_batch and batch_size are set",
            fix="keep --global-batch (samples a step over all workers) or --batch-size (samples a step a worker)",
        )
    return settings


def combine(*layers: dict[str, Any]) -> TrainOptions:
    """Checked options from several sources, later ones overriding earlier ones."""
    return make_settings(_merge(layers))


def given_values(layers: list[dict[str, Any]]) -> dict[str, Any]:
    """The values that the layers set, checked and without defaults, as plain data to send to a host."""
    values = _merge(layers)
    return _OPTIONS.dump_python(make_settings(values), mode="json", include=set(values))  # type: ignore[no-any-return]


def _merge(layers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for layer in layers:
        if layer.keys() & _BATCH_KEYS:  # a layer that sets one of the two overrides both
            values = {key: value for key, value in values.items() if key not in _BATCH_KEYS}
        values |= layer
    return values


def resolve(layers: list[dict[str, Any]], runs_dir: Path) -> tuple[TrainOptions, TrainOptions | None]:
    """The options to train with, and the recorded options of the run to resume; None if no run is resumed."""
    asked = combine(*layers)
    if not asked.resume:
        return asked, None
    name = asked.experiment_name
    folder = find_run_folder(runs_dir, name, to_resume=True) if name else newest_run_folder(runs_dir, to_resume=True)
    values = read_recorded_settings(folder.settings_file)
    return combine(values, *layers, {"experiment_name": folder.name}), combine(values)


def check_resumable(recorded: TrainOptions, asked: TrainOptions, run: str) -> None:
    """Refuse changes of settings on which a resumed run's checkpoint or its position in the data depends."""
    fixed = [*_FIXED_IN_A_RUN, *(("epochs", "max_steps") if recorded.lr_schedule == "cosine" else ())]
    changed = [name for name in fixed if getattr(recorded, name) != getattr(asked, name)]
    if changed:
        was = ", ".join(f"{name} was {getattr(recorded, name)}, now {getattr(asked, name)}" for name in changed)
        raise SettingsError(
            f"run {run} cannot go on with other settings: {was}",
            fix=f"leave {', '.join(changed)} out, or start a new run with another --experiment-name",
        )


def settings_to_record(settings: TrainOptions) -> dict[str, Any]:
    """The content of run.yaml: every setting that is needed to repeat the run."""
    return _OPTIONS.dump_python(settings, mode="json", exclude=_NOT_RECORDED, exclude_none=True)  # type: ignore[no-any-return]


def _field_name(key: str) -> str:
    name = key.replace("-", "_")
    return _ALIASES.get(name, name)
