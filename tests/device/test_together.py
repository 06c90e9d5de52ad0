"""Several workers, some on the stand-in accelerator: the same parameters as one process on the CPU."""

import pytest

from tests.device.crew import FORGETS_TO_WAIT, train
from tests.multiprocess.crew import largest_difference

CASE = {"model": "transformer", "optimizer": "adamw", "epochs": 2, "options": {"micro_batch": 5}}
SLOW_COPIES = {"STANDIN_COPY_BYTES_PER_S": "100000"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory, on_device):
    """One process on the CPU."""
    return train(tmp_path_factory.mktemp("alone"), on_device, ["cpu"], CASE)[0]


@pytest.mark.parametrize("devices", [("standin:1",), ("standin:0", "standin:1"), ("cpu", "standin:0")], ids=str)
def test_any_devices_match_one_process_on_the_cpu(tmp_path, on_device, alone, devices):
    found = train(tmp_path, on_device | SLOW_COPIES, devices, CASE)
    assert all(each["step"] == alone["step"] for each in found)
    assert all(largest_difference(alone, each) < 1e-10 for each in found)
    assert found[0]["scores"] == pytest.approx(alone["scores"], abs=1e-12)


def test_a_worker_that_forgets_to_wait_for_its_copies_computes_something_else(tmp_path, on_device, alone):
    found = train(tmp_path, on_device | SLOW_COPIES, ("standin:0", "standin:1"), CASE, code=FORGETS_TO_WAIT)
    assert largest_difference(alone, found[0]) > 1e-6


def test_a_killed_worker_is_healed_from_the_cpu_and_back(tmp_path, on_device):
    case = {**CASE, "epochs": 60, "pause_s": 0.05}
    alone = train(tmp_path / "alone", on_device, ["cpu"], {**case, "pause_s": 0.0})[0]

    def kill_one_after_the_other(workers, start):
        for number, at in ((1, 5), (0, 30)):
            workers[number].wait_for_step(at)
            workers[number].kill()
            step = max(event.step for event in workers[1 - number].committed())
            workers[number] = start(number)
            workers[number].wait_for_step(step + 3)

    found = train(tmp_path, on_device, ("cpu", "standin:1"), case, during=kill_one_after_the_other)
    assert all(largest_difference(alone, each) < 1e-10 for each in found)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_is_the_same_on_all_workers(tmp_path, on_device, precision):
    case = {"dtype": "float32", "epochs": 2, "options": {"mixed_precision": precision}}
    alone = train(tmp_path / "alone", on_device, ["standin:0"], case)[0]
    found = train(tmp_path, on_device | SLOW_COPIES, ("standin:0", "standin:1"), case)
    assert largest_difference(found[0], found[1]) == 0
    assert largest_difference(alone, found[0]) < 0.02
