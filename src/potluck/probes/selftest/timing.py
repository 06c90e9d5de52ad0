"""Steps of Potluck and of stock PyTorch in turns, in the same processes, so that any other load slows both alike."""

import copy
import statistics
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from potluck.core.environment import become_worker, read_launch
from potluck.engine.compute.device import use_threads
from potluck.engine.start import start
from potluck.probes.selftest.exchange import with_group
from potluck.selftest.orders import BatchChosen, ChooseBatch, StepsTimed, TimeSteps, Unavailable

_STEP_S = 0.1  # the length of a step for which Potluck's cost is promised
_WIDTH = 1024
_NUM_CLASSES = 10
_LARGEST_BATCH = 1 << 14
_WARM_UP_STEPS = 5
_KEPT = 2  # batches that are kept in memory: both loops read them again and again


class Noise(Dataset[tuple[Tensor, Tensor]]):
    """Random samples; sample n is the same as sample n + KEPT batches."""

    def __init__(self, batch: int, length: int) -> None:
        self._inputs = torch.randn(_KEPT * batch, _WIDTH)
        self._wanted = torch.randint(_NUM_CLASSES, (_KEPT * batch,))
        self._length = length

    def __len__(self) -> int:
        return self._length

    def potluck_batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Many samples at once."""
        kept = indices % len(self._wanted)
        return self._inputs[kept], self._wanted[kept]


def make_mlp() -> nn.Module:
    """4.2 million parameters, the model of benchmarks/overhead.py."""
    torch.manual_seed(1)
    layers = [layer for _ in range(4) for layer in (nn.Linear(_WIDTH, _WIDTH), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(_WIDTH, _NUM_CLASSES))


def choose_batch(order: ChooseBatch) -> BatchChosen:
    """Double the batch until a step takes long enough, then take the proportional number of samples."""
    become_worker(order.variables)
    use_threads(read_launch().num_threads)
    device = torch.device(order.device)
    model = make_mlp().to(device)
    batch = 16
    while True:
        step_s = _seconds_of_a_pass(model, batch, device)
        if step_s > _STEP_S / 2 or batch >= _LARGEST_BATCH:
            return BatchChosen(batch=max(1, min(_LARGEST_BATCH, round(batch * _STEP_S / step_s))))
        batch *= 2


def _seconds_of_a_pass(model: nn.Module, batch: int, device: torch.device) -> float:
    taken = []
    for _ in range(3):
        inputs, wanted = torch.randn(batch, _WIDTH), torch.zeros(batch, dtype=torch.long)
        _wait_for(device)
        began = time.perf_counter()
        cross_entropy(model(inputs.to(device)), wanted.to(device)).backward()  # type: ignore[no-untyped-call]
        _wait_for(device)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def time_steps(order: TimeSteps) -> StepsTimed | Unavailable:
    """One step of Potluck, one of stock PyTorch, and so on."""
    become_worker(order.variables)
    use_threads(read_launch().num_threads)
    device = torch.device(order.device)
    num_steps = _WARM_UP_STEPS + max(10, round(order.seconds / _STEP_S / 2))
    data = Noise(order.batch, num_steps * order.num_workers * order.batch)
    if order.num_workers == 1:
        return _take_turns(order, device, data, plain_loop(make_mlp().to(device), data, order.batch, device))
    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index or 0)
    with_group(order.rank, order.num_workers, order.port, order.backend)
    try:
        wrapped = nn.parallel.DistributedDataParallel(make_mlp().to(device))
        stock = plain_loop(wrapped, data, order.batch, device)
        next(stock)
    except RuntimeError as error:
        dist.destroy_process_group()
        return Unavailable(why=f"stock DDP on {device.type} by {order.backend}: {str(error).splitlines()[0][:160]}")
    try:
        return _take_turns(order, device, data, stock)
    finally:
        dist.destroy_process_group()


def _take_turns(order: TimeSteps, device: torch.device, data: Noise, stock: Iterator[None]) -> StepsTimed:
    model = copy.deepcopy(make_mlp())
    inner = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    potluck_s, stock_s = [], []
    with start(
        order.run,
        device=order.device,
        backend=order.backend,
        load_balance_policy="static",
        keep=[order.machine],
        watch=lambda *_: None,
    ) as run:
        prepared, optimizer = run.prepare(model, inner)
        loader = run.loader(data, global_batch=order.num_workers * order.batch)
        for _ in run.epochs(1):
            since = time.perf_counter()
            for inputs, wanted in loader:
                run.backward(cross_entropy(prepared(inputs), wanted))
                optimizer.step()
                optimizer.zero_grad()
                _wait_for(device)
                committed = time.perf_counter()
                next(stock)
                potluck_s.append(committed - since)
                since = time.perf_counter()
                stock_s.append(since - committed)
    return StepsTimed(
        potluck_s=tuple(potluck_s[_WARM_UP_STEPS:]), stock_s=tuple(stock_s[_WARM_UP_STEPS:]), batch=order.batch
    )


def plain_loop(model: nn.Module, data: Noise, batch: int, device: torch.device) -> Iterator[None]:
    """What somebody writes without Potluck, a step at a time, without an end."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    while True:
        for indices in torch.split(torch.randperm(len(data)), batch):
            inputs, wanted = data.potluck_batch(indices)
            cross_entropy(model(inputs.to(device)), wanted.to(device)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            _wait_for(device)
            yield


def _wait_for(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
