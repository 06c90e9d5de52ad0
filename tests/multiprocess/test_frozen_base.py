"""A fine-tuned model's base that differs from machine to machine: other values, or the same in fewer bytes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from potluck.events.log import read_records
from potluck.events.types import StepCommitted

EXAMPLES = Path(__file__).parents[2] / "examples"
ARGUMENTS = ["--epochs", "1", "--longest", "16", "--text", __file__]
KEPT = "home/frozen"


def train(folder, script, *, workers, more=()):
    """Run a script as that many machines, each with a folder of its own; returns what each has printed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    launch = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(workers)} if workers > 1 else {}
    processes = []
    for rank in range(workers):
        place = folder / f"machine{rank}"
        place.mkdir(parents=True, exist_ok=True)
        own = {"POTLUCK_NAME": f"machine{rank}", "POTLUCK_HOME": str(place / "home")}
        launch |= {"RANK": str(rank)} if workers > 1 else {}
        environment = {**os.environ, **launch, **own, "OMP_NUM_THREADS": "1", **(more[rank] if more else {})}
        command = [sys.executable, script, *ARGUMENTS]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        processes.append(subprocess.Popen(command, cwd=place, env=environment, **pipes))
    outputs = [process.communicate(timeout=150)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * workers, outputs
    return outputs


def losses(place):
    (file,) = (place / "experiments/finetune_lora-1/events").iterdir()
    return [one.event.loss for one in read_records(file) if isinstance(one.event, StepCommitted)]


def adapter(place):
    file = max((place / "experiments/finetune_lora-1/checkpoints").iterdir())
    model = torch.load(file, weights_only=True)["model"]
    return {name: values for name, values in model.items() if "lora_" in name}


@pytest.mark.timeout(300)
def test_another_base_is_fetched_once_and_is_on_disk_in_the_next_run(workplace):
    text = (EXAMPLES / "finetune_lora.py").read_text()
    script = workplace / "finetune_lora.py"
    script.write_text(text.replace("torch.manual_seed(0)", 'torch.manual_seed(int(__import__("os").environ["BASE"]))'))
    bases = [{"BASE": "0"}, {"BASE": "1"}]
    outputs = train(workplace / "first", script, workers=2, more=bases)
    assert "machine1: the frozen parameters here were not the run's: took 3.4 MB from another machine" in outputs[1]
    kept = [list((workplace / f"first/machine{rank}" / KEPT).glob("*")) for rank in range(2)]
    assert not kept[0]
    assert sum(file.stat().st_size for file in kept[1]) > 3_000_000

    homes = [{"POTLUCK_HOME": str(workplace / f"first/machine{rank}/home")} for rank in range(2)]
    again = [{**base, **home} for base, home in zip(bases, homes, strict=True)]
    outputs = train(workplace / "second", script, workers=2, more=again)
    assert "were not the run's: took 3.4 MB from this machine's disk" in outputs[1], outputs[1]
    first, second = (adapter(workplace / place) for place in ("first/machine0", "second/machine0"))
    assert all(torch.equal(values, second[name]) for name, values in first.items())


@pytest.mark.timeout(300)
def test_a_machine_may_keep_the_base_in_fewer_bytes(workplace):
    """Nothing of the base travels then, and the loss stays close to that of one process in fp32."""
    script = EXAMPLES / "finetune_lora.py"
    train(workplace / "alone", script, workers=1)
    outputs = train(workplace / "mixed", script, workers=2, more=[{}, {"POTLUCK_FROZEN_PRECISION": "bf16"}])
    assert "machine1: frozen parameters are kept in bf16, which saves 1.7 MB" in outputs[1]
    assert "not the run's" not in "".join(outputs)
    assert not any((workplace / f"mixed/machine{rank}" / KEPT).exists() for rank in range(2))
    wanted, found = losses(workplace / "alone/machine0"), losses(workplace / "mixed/machine0")
    assert len(found) == len(wanted) > 2
    largest = max(abs(one - other) for one, other in zip(found, wanted, strict=True))
    assert 0 < largest < 0.05
    alone, mixed = (adapter(workplace / place) for place in ("alone/machine0", "mixed/machine0"))
    assert alone.keys() == mixed.keys()
