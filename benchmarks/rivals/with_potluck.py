"""Potluck's side of the comparison: the byte model on Potluck's public API, with a record of samples and models.

potluck run --exchange int4 with_potluck.py --folder RECORD --rows 24000 --steps 440
"""

import argparse
import socket
from pathlib import Path

from torch.optim.lr_scheduler import LambdaLR

import potluck
from benchmarks.rivals.recording import BATCH, Recording, rate_after
from benchmarks.support.byte_model import losses, make, windows


def main() -> None:
    """One worker's part of the run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, default=BATCH)
    options = parser.parse_args()
    machine = socket.gethostname()
    data = windows(options.steps * options.batch, seed=1)
    model, inner = make(options.rows, 0)
    with potluck.start(device="cpu") as run:
        schedule = LambdaLR(inner, lambda step: rate_after(step * options.batch))
        prepared, optimizer, scheduler = run.prepare(model, inner, schedule)
        loader = run.loader(data.training, global_batch=options.batch)
        recording = Recording(options.folder, machine, saves=machine == "rosa")
        step = run.step
        for _ in run.epochs(1):
            for text, wanted in loader:
                run.backward(losses(prepared, text, wanted).mean())
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                recording.trained(len(text))
                if run.step != step:  # a share may come in several micro-batches
                    step = run.step
                    recording.updated()
                recording.look_at(model)
        recording.close()


if __name__ == "__main__":
    main()
