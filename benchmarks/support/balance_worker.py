"""A worker of the balance benchmark: the baseline's model under Potluck, the loop of the README.

python -m benchmarks.support.balance_worker --worker RESULT --steps 9 --batch 64 --go FILE --load-balance-policy dynamic
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

import potluck
from benchmarks.ddp_baseline import PIECE, small_cnn
from benchmarks.support.lab_machines import wait_for_go

NUM_BATCHES = 8


def worker_parser(description: str | None) -> argparse.ArgumentParser:
    """What every worker of the balance benchmarks is told."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--worker", dest="result", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--go", type=Path, required=True)
    parser.add_argument("--load-balance-policy", required=True)
    return parser


def noise(num_samples: int) -> TensorDataset:
    """Random images with random labels, the same on every machine."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(num_samples, 3, 32, 32, generator=generator)
    return TensorDataset(images, torch.randint(0, 10, (num_samples,), generator=generator))


def main() -> None:
    """Train for some steps; the events tell the rest."""
    options = worker_parser(__doc__).parse_args()
    torch.set_num_threads(1)
    data = noise(NUM_BATCHES * options.batch)
    model = small_cnn()
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    images, wanted = data[:2]
    warm_up = nn.functional.cross_entropy(model(images), wanted)  # what torch sets up once
    warm_up.backward()  # type: ignore[no-untyped-call]
    inner.zero_grad()
    wait_for_go(options.go)
    policy = options.load_balance_policy
    with potluck.start("run", device="cpu", load_balance_policy=policy, micro_batch=PIECE) as run:
        prepared, optimizer = run.prepare(model, inner)
        loader = run.loader(data, global_batch=options.batch)
        for _ in run.epochs(1 + options.steps // NUM_BATCHES, max_steps=options.steps):
            for batch, wanted in loader:
                run.backward(nn.functional.cross_entropy(prepared(batch), wanted))
                optimizer.step()
                optimizer.zero_grad()
    options.result.touch()


if __name__ == "__main__":
    main()
