"""The stand-in accelerator itself: what makes it like an accelerator is what these tests hold it to."""

SET_UP = """
import ctypes, time
import torch, standin_device
library = standin_device.library()
def slow_copies(bytes_per_s=1e7): library.standin_set_copy_rate(ctypes.c_double(bytes_per_s))
"""


def test_torch_finds_two_devices_by_itself(python):
    assert python("""
        import torch
        print(torch.accelerator.current_accelerator(), torch.accelerator.device_count())
        print((torch.ones(2, device="standin:1") + 1).device)
    """).split() == ["standin", "2", "standin:1"]


def test_a_program_that_does_not_wait_for_a_copy_reads_stale_data(python):
    python(f"""{SET_UP}
slow_copies()
source = torch.ones(100_000).pin_memory()
assert source.is_pinned() and not torch.ones(3).is_pinned()
target, stream = torch.zeros(100_000, device="standin"), torch.Stream("standin")
with stream:
    target.copy_(source, non_blocking=True)
    copied = stream.record_event()
assert target.sum().item() == 0  # another stream
torch.accelerator.current_stream().wait_event(copied)
assert target.sum().item() == 100_000

back = torch.zeros(100_000).pin_memory()
back.copy_(target, non_blocking=True)
assert back.sum().item() == 0  # the CPU runs ahead
torch.accelerator.synchronize()
assert back.sum().item() == 100_000
""")


def test_memory_that_is_not_pinned_is_copied_at_once(python):
    python(f"""{SET_UP}
slow_copies()
target = torch.zeros(100_000, device="standin")
target.copy_(torch.ones(100_000), non_blocking=True)
assert target.sum().item() == 100_000
""")


def test_events_measure_the_time_on_the_device(python):
    python(f"""{SET_UP}
slow_copies()
first, second = (torch.Event("standin", enable_timing=True) for _ in range(2))
source, target = torch.ones(100_000).pin_memory(), torch.zeros(100_000, device="standin")
first.record()
began = time.perf_counter()
target.copy_(source, non_blocking=True)
second.record()
assert time.perf_counter() - began < 0.03
assert not second.query()
second.synchronize()
assert 35 < first.elapsed_time(second) < 400
""")


def test_a_full_device_raises_torch_s_error_and_can_go_on(python):
    python(f"""{SET_UP}
library.standin_set_memory(1, ctypes.c_ulonglong(1_000_000))
kept = torch.ones(100_000, device="standin:1")
try:
    torch.ones(200_000, device="standin:1")
except torch.OutOfMemoryError as error:
    assert "out of memory" in str(error)
else:
    raise AssertionError("no error")
torch.ones(200_000, device="standin:0")
assert library.standin_used_memory(1) == 400_000
del kept
assert library.standin_used_memory(1) == 0
""")


def test_training_in_every_precision(python):
    python(f"""{SET_UP}
for name in ("float32", "bfloat16", "float16"):
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
    )
    first = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model.to("standin:1")  # after the optimizer, as scripts do
    inputs, targets = torch.randn(6, 1, 8, 8).to("standin:1"), torch.tensor([0, 1, 2, 0, 1, 2]).to("standin:1")
    scaler = torch.amp.GradScaler("standin", enabled=name == "float16")
    losses = []
    for _ in range(8):
        with torch.autocast("standin", dtype=getattr(torch, name), enabled=name != "float32"):
            outputs = model(inputs)
            assert outputs.dtype == getattr(torch, name)
            loss = torch.nn.functional.cross_entropy(outputs, targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2, losses
    assert all((a != b.cpu()).any() for a, b in zip(first, model.parameters()))
""")


def test_one_device_can_be_slower(python):
    python(f"""{SET_UP}
library.standin_set_slowness(1, ctypes.c_double(5))
def seconds(device):
    matrix = torch.randn(400, 400, device=device)
    began = time.perf_counter()
    for _ in range(5):
        matrix @ matrix
    return time.perf_counter() - began
assert seconds("standin:1") > 2.5 * min(seconds("standin:0") for _ in range(2))
""")


def test_an_operator_refuses_tensors_of_two_devices(python):
    python(f"""{SET_UP}
on_device = torch.ones(3, device="standin:0")
assert (on_device * torch.tensor(2.0)).sum().item() == 6  # a number may come from the CPU
assert on_device[torch.tensor([0, 1])].tolist() == [1, 1]  # an index, too
for other in (torch.ones(3), torch.ones(3, device="standin:1")):
    try:
        on_device + other
    except RuntimeError as error:
        assert "same device" in str(error)
    else:
        raise AssertionError("no error")
""")


def test_a_device_can_be_without_float64_and_tells_its_memory(python):
    python(
        """
import torch
ones = torch.ones(1000, device="standin:1")
assert torch.accelerator.memory_allocated(1) == 4000
assert torch.accelerator.get_memory_info(1) == (96_000, 100_000)
for change in (lambda: ones.double(), lambda: ones.to("cpu", torch.float64), lambda: ones.sum(dtype=torch.float64)):
    try:
        change()
    except TypeError as error:
        assert "float64" in str(error)
    else:
        raise AssertionError("no error")
assert ones.cpu().double().sum().item() == 1000
del ones
assert torch.accelerator.max_memory_allocated(1) == 4000
""",
        STANDIN_WITHOUT_FLOAT64="1",
        STANDIN_MEMORY_BYTES="100000",
    )
