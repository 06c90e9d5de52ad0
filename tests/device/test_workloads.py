"""The built-in models on the stand-in accelerator."""

import socket
import subprocess
import sys


def test_every_built_in_model_trains_as_on_the_cpu(python):
    python("""
from pathlib import Path
import torch
from potluck.core.run_options import TrainOptions
from potluck.workloads.models import MODELS
from potluck.workloads.trainer import complete, train

torch.set_num_threads(1)
for model in MODELS:
    if model == "resnet50":  # of the same parts as resnet18
        continue
    scores = []
    for device in ("cpu", "standin:1"):
        settings = TrainOptions(
            model=model, model_size="tiny", device=device, num_samples=8, global_batch=4, epochs=1, max_steps=2,
            experiment_name=f"{model}-{device.partition(':')[0]}",
        )
        done = train(complete(settings, data_dir=Path("data")), runs_dir=Path("runs"), watch=lambda *_: None)
        scores.append(done.scores)
    for name, score in scores[0].items():
        assert abs(score - scores[1][name]) < 1e-4 * max(1.0, abs(score)), (model, scores)
""")


def test_two_workers_of_one_machine_take_a_device_each(on_device, workplace):
    """As a launcher starts them, without --device; with accelerators that have no float64."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    shared = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "POTLUCK_HOME": str(workplace / "home"),
        "STANDIN_WITHOUT_FLOAT64": "1",
    }
    train = ("train", "--model", "resnet18", "--model-size", "tiny", "--num-samples", "32", "--global-batch", "16")
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "potluck", *train, "--experiment-name", "one"],
            env={**on_device, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=200)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    events = "".join(file.read_text() for file in (workplace / "experiments/one/events").glob("*.jsonl"))
    assert '"device":"standin:0"' in events
    assert '"device":"standin:1"' in events
