"""Events into TensorBoard and MLflow: the real packages read back what was written."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from potluck.core.errors import ReportError
from potluck.core.run_folder import RunFolder
from potluck.events.log import read_records
from potluck.events.state import RunState, apply
from potluck.report import outlets
from potluck.report.outlets import open_outlet
from tests.unit.report.runs import eventful


def feed(kind, folder, until=None):
    state = RunState()
    with open_outlet(kind, folder) as outlet:
        for record in list(read_records(folder.event_file("rosa", 0)))[:until]:
            state = apply(state, record)
            outlet(record, state)


def test_tensorboard_reads_the_losses(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = eventful(tmp_path)
    feed("tensorboard", folder)
    read = accumulator.EventAccumulator(str(folder.path / "logs" / "tensorboard"))
    read.Reload()
    losses = read.Scalars("train/loss")
    assert [losses[0].step, losses[-1].step, len(losses)] == [81, 210, 130]
    assert "held_out/accuracy" in read.Tags()["scalars"]


MLFLOW = """
import sys
from pathlib import Path
import mlflow
from potluck.core.run_folder import RunFolder
from tests.unit.report.test_outlets import feed

folder = RunFolder(Path(sys.argv[1]))
feed("mlflow", folder, until=60)
feed("mlflow", folder)
client = mlflow.MlflowClient()
for run in client.search_runs([client.get_experiment_by_name("potluck").experiment_id]):
    steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "train/loss")]
    print(run.info.run_name, run.info.status, run.data.params["model"], max(steps), run.data.params["env"])
"""


@pytest.mark.slow
def test_mlflow_has_one_run_also_after_a_resume(tmp_path):
    if importlib.util.find_spec("mlflow") is None:
        pytest.skip("mlflow is not installed")
    folder = eventful(tmp_path)
    with folder.settings_file.open("a") as file:
        file.write("env: [HF_TOKEN=abc, NCCL_DEBUG=INFO]\n")
    # In a process of its own: MLflow keeps threads for as long as its process lives.
    done = subprocess.run(
        [sys.executable, "-c", MLFLOW, folder.path],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.splitlines() == ["eventful FINISHED simple_cnn 210 ['HF_TOKEN=...', 'NCCL_DEBUG=INFO']"], (
        done.stderr
    )


def read_wandb(file):
    """The records of a .wandb file, which are laid out as in a log of LevelDB, after 7 bytes."""
    content, at, parts = file.read_bytes(), 7, []
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        parts.append(content[at + 7 : at + 7 + length])
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield b"".join(parts)
            parts = []


WANDB = """
import sys
from pathlib import Path
from wandb.proto import wandb_internal_pb2
from tests.unit.report.test_outlets import read_wandb
from potluck.core.run_folder import RunFolder
from tests.unit.report.test_outlets import feed

folder = RunFolder(Path(sys.argv[1]))
feed("wandb", folder, until=60)
feed("wandb", folder)
for file in sorted((folder.path / "logs" / "wandb").glob("offline-run-*/*.wandb")):
    steps, names, run = [], set(), None
    for data in read_wandb(file):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("run"):
            run = record.run
        items = {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
        names |= items.keys()
        if "train/loss" in items:
            steps.append(int(items["step"]))
    print(run.display_name, run.project, run.run_id, steps[0], steps[-1], "held_out/accuracy" in names)
"""


@pytest.mark.slow
def test_wandb_has_one_run_also_after_a_resume(tmp_path):
    if importlib.util.find_spec("wandb") is None:
        pytest.skip("wandb is not installed")
    folder = eventful(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", WANDB, folder.path],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "WANDB_MODE": "offline"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout, done.stderr
    first, second = (line.split() for line in done.stdout.splitlines())
    assert first[:2] == second[:2] == ["eventful", "potluck"], done.stderr
    assert first[2] == second[2] == (folder.path / "logs" / "wandb_run_id").read_text().strip()
    assert second[3:] == ["81", "210", "True"]


def test_nothing_is_written_where_nothing_is_asked_for(tmp_path):
    folder = eventful(tmp_path)
    feed(None, folder)
    assert not (folder.path / "logs").exists()


def test_a_missing_package_is_told_with_its_fix(tmp_path, monkeypatch):
    monkeypatch.setattr(outlets.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ReportError, match="mlflow is not installed") as error:
        outlets.check_outlet("mlflow")
    assert error.value.fix == f"uv pip install --python {sys.executable} mlflow"


def test_an_unknown_outlet_is_answered_with_the_known_ones(tmp_path):
    with pytest.raises(ReportError, match="cannot log to") as error, open_outlet("tensorbord", RunFolder(tmp_path)):
        pass
    assert "tensorboard" in error.value.fix
