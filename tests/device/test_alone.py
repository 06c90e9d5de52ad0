"""One process on the stand-in accelerator: where things are placed, timed and kept."""

RUNS = """
import torch
from tests.multiprocess.worker import train
from tests.device.crew import difference

torch.set_num_threads(1)

def trained(name, *devices, **case):
    for number, device in enumerate(devices, 1):
        options = {**case.get("options", {}), "resume": number > 1, "quiet": True}
        train({"optimizer": "adamw", **case, "run": name, "device": device, "epochs": number, "options": options,
               "result": f"{name}.pt"})
    return torch.load(f"{name}.pt")
"""


def test_a_worker_takes_the_device_that_it_was_launched_for(python):
    python("""
from potluck.core.errors import SettingsError
from potluck.engine.compute.device import choose_device
from potluck.machine.software import find_devices

assert find_devices()[0] == ["standin:0", "standin:1"]
chosen = {
    "standin:0": [(None,), ("standin",), (None, 2), ("standin:0", 1), ("standin", 1, "standin:0")],
    "standin:1": [(None, 1), ("standin", 1), ("standin:1",), (None, 0, "standin:1"), ("standin", 0, "standin:1")],
    "cpu": [("cpu", 1), ("cpu", 0, "standin:1"), (None, 1, "cpu")],
}
for device, asked in chosen.items():
    assert [str(choose_device(*one)) for one in asked] == [device] * len(asked), device
for wrong in ("standin:2", "cuda", "gpu"):
    try:
        choose_device(wrong)
    except SettingsError as error:
        print(error, error.fix)
    else:
        raise AssertionError(wrong)
""")


def test_a_checkpoint_moves_between_devices(python):
    python(f"""{RUNS}
transformer = {{"model": "transformer"}}
alone = trained("alone", "cpu", "cpu", "cpu", **transformer)
moved = trained("moved", "standin:1", "cpu", "standin:0", **transformer)
assert moved["step"] == alone["step"] == 21
assert difference(alone, moved) < 1e-11

half = {{"dtype": "float32", "options": {{"mixed_precision": "fp16"}}}}
stayed, moved = trained("stayed", *["standin:0"] * 2, **half), trained("half", "standin:1", "standin:0", **half)
assert difference(stayed, moved) == 0
""")


def test_recomputed_blocks_and_data_read_ahead_give_the_cpu_s_result(python):
    python(
        f"""{RUNS}
if __name__ == "__main__":
    case = {{"model": "transformer", "num_workers": 1, "options": {{"gradient_checkpointing": True, "micro_batch": 6}}}}
    assert difference(trained("alone", "cpu", **case), trained("device", "standin:1", **case)) < 1e-11
""",
        STANDIN_COPY_BYTES_PER_S="300000",
    )


def test_an_optimizer_that_has_stepped_before_follows_its_model_to_the_device(python):
    python("""
import torch
import potluck
from tests.training import make_data, make_mlp

def trained(device):
    model = make_mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs, targets = make_data(16).tensors
    torch.nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    optimizer.zero_grad()
    with potluck.start(device[:3], device=device, quiet=True) as run:
        prepared, stepper = run.prepare(model, optimizer)
        for _ in run.epochs(1):
            for inputs, targets in run.loader(make_data(32), global_batch=8):
                run.backward(torch.nn.functional.cross_entropy(prepared(inputs), targets))
                stepper.step()
                stepper.zero_grad()
    return torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])

assert (trained("cpu") - trained("standin:1")).abs().max().item() < 1e-12
""")


def test_compute_is_what_the_device_took(python):
    """The CPU hands work to the device and goes on: events in the device's queue tell compute from the wait."""
    python("""
import ctypes
import torch, standin_device
from tests.unit.measuring.test_step_timer import compute_is_what_the_device_took

standin_device.library().standin_set_copy_rate(ctypes.c_double(2e6))
source, target = torch.ones(100_000).pin_memory(), torch.zeros(100_000, device="standin:1")
torch.accelerator.set_device_index(1)
timing = compute_is_what_the_device_took(
    torch.device("standin:1"), lambda: target.copy_(source, non_blocking=True)
)
assert timing.compute_s > 0.19, timing
""")
