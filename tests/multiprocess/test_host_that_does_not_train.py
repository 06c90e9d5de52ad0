"""A host without a worker of its own: what it shows of a run that another machine trains, and one MLflow run of it."""

import importlib.util
import json
import signal
import subprocess
import sys
import time

import pytest

from potluck.report.runs import list_runs
from tests.multiprocess.command import SMALL, Command
from tests.multiprocess.test_meeting_door import RealHost, free_port

RUN = "elsewhere"
READ_MLFLOW = """
import json, mlflow
client = mlflow.MlflowClient()
(run,) = client.search_runs([client.get_experiment_by_name("potluck").experiment_id])
steps = [point.step for point in client.get_metric_history(run.info.run_id, "train/loss")]
print(json.dumps([run.info.run_name, run.info.status, run.data.params["model"], sorted(steps)]))
"""


@pytest.fixture
def mlflow_store(workplace, monkeypatch):
    if importlib.util.find_spec("mlflow") is None:
        pytest.skip("mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{workplace}/mlflow.db")
    return {"MLFLOW_TRACKING_URI": f"sqlite:///{workplace}/mlflow.db"}


def test_the_run_goes_on_for_the_host_too_and_mlflow_has_one_run(workplace, mlflow_store):
    host = RealHost(free_port())
    lily = Command("join", host.invitation, "--name", "lily", "--devices", "cpu,cpu", home="lily")
    training = None
    try:
        lily.wait_for("waiting for work")
        more = ["--epochs", "60", "--log-to", "mlflow", "--experiment-name", RUN]
        training = Command("train", *SMALL, *more, **mlflow_store)
        training.wait_for_step(RUN, 5)
        states = {row.status for row in list_runs(workplace / "experiments")}
        assert states == {"running"}
        assert Command("stop", RUN).finish(60)[0] == 0
        code, output = training.finish(60)
        assert code == 130, output
        (row,) = list_runs(workplace / "experiments")
        assert row.status == "stopped"
    finally:
        lily.signal(signal.SIGINT)
        lily.finish(60)
        host.end()
    # In a process of its own: MLflow keeps threads for as long as its process lives.
    read = subprocess.run([sys.executable, "-c", READ_MLFLOW], capture_output=True, text=True, timeout=100, check=True)
    name, status, model, steps = json.loads(read.stdout)
    assert (name, status, model) == (RUN, "KILLED", "simple_cnn")
    assert steps == list(range(1, row.state.step + 1))  # every step once, although two workers told of it


def test_a_replaced_host_without_a_worker_votes_and_may_be_the_host_again(workplace):
    host = RealHost(free_port())
    lily = Command("join", host.invitation, "--name", "lily", "--devices", "cpu", home="lily")
    deadline = time.monotonic() + 90

    def ask_until(there, *words):
        while True:
            code, output = Command(*words).finish(60)
            if code == 0 and there(output):
                return
            assert time.monotonic() < deadline, output

    def is_a_successor(output):
        status = json.loads(output)
        kept = status["succession"]
        return status["host"] == "lily" and "rosa" in kept["voters"] and kept["copied"].get("rosa", 0) > 0

    try:
        lily.wait_for("waiting for work")
        ask_until(bool, "handover", "lily")
        ask_until(is_a_successor, "status", "--json")
        ask_until(bool, "handover", "rosa")
        ask_until(lambda output: json.loads(output)["host"] == "rosa", "status", "--json")
    finally:
        lily.signal(signal.SIGINT)
        lily.finish(60)
        host.end()
