"""The self-test's training: a small model on fixed data, with the engine that every training script uses."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from potluck.core.environment import become_worker
from potluck.core.errors import MeasureError
from potluck.engine.run import Run
from potluck.engine.start import start
from potluck.events.state import RunState
from potluck.events.types import GroupChanged, Record, StepCommitted
from potluck.selftest.orders import Train, Trained
from potluck.selftest.problem import GLOBAL_BATCH, NUM_SAMPLES

_NUM_FEATURES = 24
_NUM_CLASSES = 4
_WIDTH = 16
SEED = 17
_ROOM_BYTES = 3 << 29  # address space beyond what the process has: the most that a full CPU's memory may grow by


class SmallMlp(nn.Module):
    """About 700 parameters; no layer looks at more than one sample, so that any split of a batch gives the same."""

    def __init__(self, scratch_bytes: int = 0) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(_NUM_FEATURES, _WIDTH),
            nn.GELU(),
            nn.LayerNorm(_WIDTH),
            nn.Linear(_WIDTH, _NUM_CLASSES),
        )
        self._scratch_bytes = scratch_bytes
        self.largest = 0

    def forward(self, inputs: Tensor) -> Tensor:
        num_samples = len(inputs)
        self.largest = max(self.largest, num_samples)
        if self._scratch_bytes:
            torch.empty(num_samples**3 * self._scratch_bytes, dtype=torch.uint8, device=inputs.device)
        outputs: Tensor = self.layers(inputs)
        return outputs


class RunWatcher:
    """Notes what the run's events say while it trains."""

    def __init__(self) -> None:
        self.shares: list[int] = []
        self.is_missing_somebody = False

    def __call__(self, record: Record, _: RunState) -> None:
        match record.event:
            case StepCommitted(own_samples=samples):
                self.shares.append(samples)
            case GroupChanged(reason=reason):
                self.is_missing_somebody = reason != "joined"


def train(order: Train) -> Trained:
    """Train as ordered. After an out-of-memory error start again, as the error says, until the micro-batch fits."""
    become_worker(order.variables)
    compute_exactly()
    began = time.monotonic()
    did_not_fit: list[int] = []
    with _little_memory(order):
        while True:
            watcher, model = RunWatcher(), make_model(order)
            try:
                parameters = _train_once(order, model, watcher, resume=bool(did_not_fit))
            except MeasureError:
                if not order.scratch_bytes or len(did_not_fit) > 10:
                    raise
                did_not_fit.append(model.largest)
                continue
            return Trained(
                parameters=parameters,
                shares=tuple(watcher.shares),
                did_not_fit=tuple(did_not_fit),
                micro_batch=model.largest,
                seconds=time.monotonic() - began,
            )


def compute_exactly() -> None:
    """Switch TF32 off, which some containers switch on: with it, products of float32 have three digits."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False


def make_model(order: Train) -> SmallMlp:
    """The model with the same initial parameters in every process."""
    torch.manual_seed(SEED)
    model = SmallMlp(order.scratch_bytes)
    return model.double() if order.precision == "fp64" else model


def make_data(precision: str) -> TensorDataset:
    """The same samples in every process."""
    generator = torch.Generator().manual_seed(SEED)
    inputs = torch.randn(NUM_SAMPLES, _NUM_FEATURES, generator=generator, dtype=torch.float64)
    wanted = inputs[:, :_NUM_CLASSES].argmax(1)
    return TensorDataset(inputs if precision == "fp64" else inputs.float(), wanted)


def _train_once(order: Train, model: SmallMlp, watcher: RunWatcher, *, resume: bool) -> tuple[float, ...]:
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with start(
        order.run,
        device=order.device,
        seed=SEED,
        mixed_precision="no" if order.precision in ("fp64", "fp32") else order.precision,
        backend=order.backend,
        load_balance_policy=order.policy,
        keep=[order.machine],
        resume=resume,
        watch=watcher,
    ) as run:
        loop(run, order, model, inner, watcher)
    return values_of(model)


def values_of(model: nn.Module) -> tuple[float, ...]:
    """All numbers of the model's parameters."""
    return tuple(value for one in model.parameters() for value in one.detach().double().cpu().flatten().tolist())


def loop(run: Run, order: Train, model: nn.Module, inner: torch.optim.Optimizer, watcher: RunWatcher) -> None:
    """The loop of docs/training-script.md."""
    prepared, optimizer = run.prepare(model, inner)
    loader = run.loader(make_data(order.precision), global_batch=GLOBAL_BATCH)
    for _ in run.epochs(order.epochs):
        for inputs, wanted in loader:
            run.backward(cross_entropy(prepared(inputs), wanted))
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(order.wait_s if watcher.is_missing_somebody else order.pause_s)


@contextmanager
def _little_memory(order: Train) -> Iterator[None]:
    """Where the model asks for much scratch memory: on the CPU, limit this process's address space meanwhile."""
    if not order.scratch_bytes:
        yield
        return
    if torch.device(order.device).type != "cpu":
        try:
            yield
        finally:
            torch.accelerator.empty_cache()  # other processes of the self-test use the same card
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _ROOM_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
