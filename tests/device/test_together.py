"""Several workers, some on the stand-in accelerator: the same parameters as one process on the CPU."""

import pytest

from potluck.events.log import read_records
from potluck.events.progress_lines import backend_text
from potluck.events.types import BackendChosen
from tests.device.crew import difference, train

CASE = {"model": "transformer", "optimizer": "adamw", "epochs": 1, "options": {"micro_batch": 5}}
SLOW_COPIES = {"STANDIN_COPY_BYTES_PER_S": "300000"}


REASONS = {
    ("standin:0", "standin:1"): [
        "Gloo through host memory, because torch on machine0 and machine1 has no NCCL for standin:0"
    ],
    ("cpu", "standin:0"): ["Gloo through host memory, because machine0 trains on its CPU"],
}


def backends(folder):
    """How each worker's group exchanged gradients, and why, by its events."""
    files = sorted(folder.glob("worker*/experiments/one/events/*.jsonl"))
    return [backend_text(r.event) for file in files for r in read_records(file) if isinstance(r.event, BackendChosen)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory, on_device):
    """One process on the CPU."""
    return train(tmp_path_factory.mktemp("alone"), on_device, ["cpu"], CASE)[0]


@pytest.mark.parametrize("devices", [("standin:1",), ("standin:0", "standin:1"), ("cpu", "standin:0")], ids=str)
def test_any_devices_match_one_process_on_the_cpu(tmp_path, on_device, alone, devices):
    found = train(tmp_path, on_device | SLOW_COPIES, devices, CASE)
    assert all(each["step"] == alone["step"] for each in found)
    assert all(difference(alone, each) < 1e-11 for each in found)
    assert found[0]["scores"] == pytest.approx(alone["scores"], abs=1e-12)
    assert backends(tmp_path) == REASONS.get(devices, []) * len(devices)


def test_a_killed_worker_is_healed_from_the_cpu_and_back(tmp_path, on_device):
    case = {**CASE, "epochs": 20}
    alone = train(tmp_path / "alone", on_device, ["cpu"], case)[0]
    healed = tmp_path / "healed"

    def kill_one_after_the_other(workers, start):
        for number in (1, 0):
            workers[number].wait_for_step(3)
            workers[number].kill()
            step = max(event.step for event in workers[1 - number].committed())
            workers[number] = start(number)
            workers[number].wait_for_step(step + 2)
        healed.touch()

    slow = {**case, "pause_s": 1.0, "no_pause": str(healed)}
    found = train(tmp_path, on_device, ("cpu", "standin:1"), slow, during=kill_one_after_the_other)
    assert all(difference(alone, each) < 1e-11 for each in found)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_is_the_same_on_all_workers(tmp_path, on_device, precision):
    case = {"dtype": "float32", "epochs": 1, "options": {"mixed_precision": precision}}
    alone = train(tmp_path / "alone", on_device, ["standin:0"], case)[0]
    found = train(tmp_path, on_device | SLOW_COPIES, ("standin:0", "cpu"), case)
    assert difference(found[0], found[1]) == 0
    assert difference(alone, found[0]) < 0.02
