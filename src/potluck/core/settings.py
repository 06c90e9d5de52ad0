"""What a built-in training run is told: defaults, then a YAML file, then flags; recorded in run.yaml."""

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from potluck.core.errors import SettingsError, did_you_mean
from potluck.core.run_folder import find_run_folder, newest_run_folder

# The name belongs to the folder, resuming and addresses to the moment: a repeat must be free to choose them.
_NOT_RECORDED = {"experiment_name", "resume", "resume_from", "master_addr", "master_port"}
_BATCH_KEYS = {"global_batch", "batch_size"}
_FIXED_IN_A_RUN = (
    *("model", "model_size", "dataset", "num_samples", "global_batch", "seed"),
    *("optimizer", "learning_rate", "lr_schedule", "momentum", "weight_decay", "mixed_precision"),
)
_ALIASES = {"lr": "learning_rate"}


class TrainSettings(BaseModel):
    """Settings of `potluck train`. None means: chosen from the rest when the run starts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = "simple_cnn"
    model_size: str | None = None
    dataset: str | None = None
    data_dir: Path | None = None
    num_samples: int | None = Field(default=None, ge=1)

    global_batch: int | None = Field(default=None, ge=1)
    batch_size: int | None = Field(default=None, ge=1)
    micro_batch: int | None = Field(default=None, ge=1)
    epochs: int = Field(default=2, ge=1)
    max_steps: int | None = Field(default=None, ge=1)

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    learning_rate: float | None = Field(default=None, gt=0)
    lr_schedule: Literal["constant", "cosine"] = "constant"
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)

    mixed_precision: Literal["no", "fp16", "bf16"] = "no"
    gradient_checkpointing: bool = False
    device: str | None = None
    loader_workers: int = Field(default=0, ge=0)
    seed: int = Field(default=0, ge=0)

    enable_load_balancing: bool = True
    load_balance_policy: Literal["static", "proportional", "dynamic"] = "dynamic"
    keep: tuple[str, ...] = ()
    enable_profiling: bool = False
    memory_limit: str | None = None

    backend: Literal["auto", "gloo", "nccl"] = "auto"
    master_addr: str | None = None
    master_port: int | None = Field(default=None, ge=1, le=65535)

    checkpoint_every: int | None = Field(default=None, ge=1)
    keep_checkpoints: int = Field(default=3, ge=1)
    experiment_name: str | None = None
    resume: bool = False
    resume_from: Path | None = None

    @field_validator("mixed_precision", mode="before")
    @classmethod
    def _yaml_reads_no_as_false(cls, value: object) -> object:
        return "no" if value is False else value

    @model_validator(mode="after")
    def _one_batch_size(self) -> "TrainSettings":
        if self.global_batch is not None and self.batch_size is not None:
            raise SettingsError(
                "both global_batch and batch_size are set",
                fix="keep --global-batch (samples a step over all workers) or --batch-size (samples a step a worker)",
            )
        return self


def read_settings_file(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file, checked one by one so that a mistake is named with its file."""
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise SettingsError(f"there is no file {path}", fix="check the path after --config") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}", fix="check the path after --config") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{path} is not YAML: {error}", fix="write it as lines of `key: value`") from None
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
    """The settings in a run's run.yaml, if `potluck train` made it."""
    content = yaml.safe_load(path.read_text())
    if isinstance(content, dict) and "script" in content:
        raise SettingsError(
            f"run {path.parent.name} was started by {content['script']}",
            fix=f"go on with: python {content['script']}, with resume=True in potluck.start",
        )
    return read_settings_file(path)


def make_settings(values: dict[str, Any], *, source: str = "the command line") -> TrainSettings:
    """Checked settings from plain values; `source` is named when one is wrong."""
    for key in values:
        if key not in TrainSettings.model_fields:
            raise SettingsError(f"unknown key {key!r} in {source}", fix=did_you_mean(key, TrainSettings.model_fields))
    try:
        return TrainSettings(**values)
    except ValidationError as error:
        problem = error.errors()[0]
        key = str(problem["loc"][0])
        raise SettingsError(
            f"{key} in {source} cannot be {problem['input']!r}", fix=f"{key}: {problem['msg'].lower()}"
        ) from None


def combine(*layers: dict[str, Any]) -> TrainSettings:
    """Checked settings from several sources, later ones overriding earlier ones."""
    values: dict[str, Any] = {}
    for layer in layers:
        if layer.keys() & _BATCH_KEYS:  # naming one of the two settles the question anew
            values = {key: value for key, value in values.items() if key not in _BATCH_KEYS}
        values |= layer
    return make_settings(values)


def resolve(layers: list[dict[str, Any]], runs_dir: Path) -> tuple[TrainSettings, TrainSettings | None]:
    """What is asked for, and what the run that is to go on was recorded with, if one is."""
    asked = combine(*layers)
    if not asked.resume:
        return asked, None
    name = asked.experiment_name
    folder = find_run_folder(runs_dir, name) if name else newest_run_folder(runs_dir)
    values = read_recorded_settings(folder.settings_file)
    return combine(values, *layers, {"experiment_name": folder.name}), combine(values)


def check_resumable(recorded: TrainSettings, asked: TrainSettings, run: str) -> None:
    """Refuse what a resumed run cannot change: its state was made with it, or its data position rests on it."""
    fixed = [*_FIXED_IN_A_RUN, *(("epochs", "max_steps") if recorded.lr_schedule == "cosine" else ())]
    changed = [name for name in fixed if getattr(recorded, name) != getattr(asked, name)]
    if changed:
        was = ", ".join(f"{name} was {getattr(recorded, name)}, now {getattr(asked, name)}" for name in changed)
        raise SettingsError(
            f"run {run} cannot go on with other settings: {was}",
            fix=f"leave {', '.join(changed)} out, or start a new run with another --experiment-name",
        )


def settings_to_record(settings: TrainSettings) -> dict[str, Any]:
    """What run.yaml holds: every setting that is needed to repeat the run."""
    return settings.model_dump(mode="json", exclude=_NOT_RECORDED, exclude_none=True)


def _field_name(key: str) -> str:
    name = key.replace("-", "_")
    return _ALIASES.get(name, name)
