"""Sends a run's numbers to TensorBoard files, MLflow or Weights & Biases while it trains."""

import importlib.util
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from potluck.core.atomic import write_text
from potluck.core.errors import ReportError, did_you_mean
from potluck.core.pip_lines import pip_install
from potluck.core.run_folder import RunFolder
from potluck.core.run_variables import show_settings
from potluck.core.yaml_file import read_yaml
from potluck.events.state import RunState
from potluck.events.types import Record
from potluck.report.scalars import scalars

Outlet: TypeAlias = Callable[[Record, RunState], None]
_BATCH_S = 2.0
_MLFLOW_STATES = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
_MOST_IN_BATCH = 500  # MLflow takes at most 1000 metrics at once


def check_outlet(kind: str | None) -> None:
    """Refuse an unknown outlet, or one whose package is not installed, before the run starts."""
    if kind is None:
        return
    if kind not in OUTLETS:
        raise ReportError(f"Potluck cannot log to {kind!r}", fix=did_you_mean(kind, OUTLETS))
    if importlib.util.find_spec(kind) is None:
        raise ReportError(f"{kind} is not installed", fix=pip_install(kind))


@contextmanager
def open_outlet(kind: str | None, folder: RunFolder, settings: Mapping[str, Any] | None = None) -> Iterator[Outlet]:
    """Open an outlet: a function that takes every event of a run once, and does nothing if `kind` is None.

    `settings` are those of the run; None reads them from the run's folder.
    """
    check_outlet(kind)
    if kind is None:
        yield lambda _record, _state: None
        return
    outlet = OUTLETS[kind](folder, settings)
    try:
        yield outlet.take
    finally:
        outlet.close()


class _TensorBoard:
    """Event files in <run>/logs/tensorboard; a resumed run adds a file, and TensorBoard joins them."""

    def __init__(self, folder: RunFolder, _: Mapping[str, Any] | None) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415

        self._folder = folder.path / "logs" / "tensorboard"
        self._make_writer = EventFileWriter
        self._writer: Any = None

    def take(self, record: Record, state: RunState) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415
        from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415

        if self._writer is None:  # the run's folder exists from the first event on
            self._writer = self._make_writer(str(self._folder))
        step, values = scalars(record, state)
        if values:
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
            self._writer.add_event(Event(wall_time=record.time, step=step, summary=summary))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _MLflow:
    """One MLflow run, at MLFLOW_TRACKING_URI, for the whole Potluck run; a resumed run goes on with the same one."""

    def __init__(self, folder: RunFolder, settings: Mapping[str, Any] | None) -> None:
        import mlflow  # noqa: PLC0415

        self._folder = folder
        self._settings = settings
        self._id_file: Path = folder.path / "logs" / "mlflow_run_id"
        self._waiting: list[Any] = []
        self._sent_at = time.monotonic()
        self._last_batch: Any = None
        self._ended = ""
        self._id = ""
        try:
            self._client = mlflow.MlflowClient()
            experiment = self._client.get_experiment_by_name("potluck")
            self._experiment_id = experiment.experiment_id if experiment else self._client.create_experiment("potluck")
        except mlflow.exceptions.MlflowException as error:
            raise ReportError(
                f"MLflow cannot be used with {mlflow.get_tracking_uri()}: {error}",
                fix="check MLFLOW_TRACKING_URI, or leave --log-to mlflow out",
            ) from None

    def take(self, record: Record, state: RunState) -> None:
        import mlflow  # noqa: PLC0415

        if not self._id:
            self._begin()
        self._ended = state.ended
        step, values = scalars(record, state)
        at_ms = round(1000 * record.time)
        self._waiting += [mlflow.entities.Metric(name, value, at_ms, step) for name, value in values.items()]
        if len(self._waiting) >= _MOST_IN_BATCH or time.monotonic() - self._sent_at > _BATCH_S:
            self._send()

    def close(self) -> None:
        import mlflow  # noqa: PLC0415

        if not self._id:
            return
        self._send()
        try:
            if self._last_batch is not None:
                self._last_batch.wait()  # batches go out in order
            self._client.set_terminated(self._id, status=_MLFLOW_STATES.get(self._ended, "FAILED"))
        except mlflow.exceptions.MlflowException as error:
            raise ReportError(
                f"MLflow did not take the last numbers of {self._folder.name}: {error}",
                fix="the run itself is whole; see it with: potluck report " + self._folder.name,
            ) from None

    def _begin(self) -> None:
        """Find or create the MLflow run; called at the first event, when the run's folder exists."""
        if self._id_file.is_file():
            self._id = self._id_file.read_text().strip()
            return
        self._id = self._client.create_run(self._experiment_id, run_name=self._folder.name).info.run_id
        write_text(self._id_file, self._id + "\n")
        for key, value in _known_settings(self._folder, self._settings).items():
            self._client.log_param(self._id, key, value)

    def _send(self) -> None:
        """Send the waiting metrics in the background: training does not wait for the MLflow server."""
        if self._waiting:
            self._last_batch = self._client.log_batch(self._id, metrics=self._waiting, synchronous=False)
        self._waiting, self._sent_at = [], time.monotonic()


class _Wandb:
    """One run of Weights & Biases in the project `potluck`; a resumed run goes on with the same one.

    WANDB_MODE=offline keeps it in <run>/logs/wandb, for `wandb sync` later.
    """

    def __init__(self, folder: RunFolder, settings: Mapping[str, Any] | None) -> None:
        self._folder = folder
        self._settings = settings
        self._ended = ""
        self._run: Any = None

    def take(self, record: Record, state: RunState) -> None:
        if self._run is None:  # the run's folder exists from the first event on
            self._run = self._begin()
        self._ended = state.ended
        step, values = scalars(record, state)
        if values:
            self._run.log({**values, "step": step})

    def close(self) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if self._ended in ("finished", "stopped") else 1)

    def _begin(self) -> Any:
        import wandb  # noqa: PLC0415

        logs = self._folder.path / "logs"
        logs.mkdir(exist_ok=True)
        id_file = logs / "wandb_run_id"
        if not id_file.is_file():
            write_text(id_file, secrets.token_hex(4) + "\n")
        try:
            run = wandb.init(
                project="potluck",
                name=self._folder.name,
                id=id_file.read_text().strip(),
                resume="allow",
                dir=str(logs),
                config=dict(_known_settings(self._folder, self._settings)),
                settings=wandb.Settings(console="off", quiet=True, x_disable_stats=True),
            )
        except wandb.errors.Error as error:
            raise ReportError(
                f"Weights & Biases cannot be used: {error}",
                fix="run: wandb login, or set WANDB_MODE=offline, or leave --log-to wandb out",
            ) from None
        # Its own step may only grow; a step that was repeated or resumed may not.
        run.define_metric("*", step_metric="step")
        return run


def _known_settings(folder: RunFolder, settings: Mapping[str, Any] | None) -> Mapping[str, Any]:
    file = folder.settings_file
    if settings is None and file.is_file():
        return show_settings(read_yaml(file) or {})
    return show_settings(settings or {})


OUTLETS: dict[str, Any] = {"tensorboard": _TensorBoard, "mlflow": _MLflow, "wandb": _Wandb}
