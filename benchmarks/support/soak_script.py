"""The training script of a long soak: an MLP in float64, which says after every step how far its machine is.

potluck run soak_script.py --progress FOLDER
"""

import argparse
import socket
import time
from pathlib import Path

import torch
from torch import nn

import potluck
from benchmarks.support.worker import make_problem

NUM_SAMPLES = 12_000
NUM_FEATURES = 64
BATCH = 60
ENDLESS = 10_000_000


def main() -> None:
    """Train until somebody stops the run, or for --steps; save the parameters in --result, if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--progress", type=Path, help="a folder that gets a file for each machine, with its newest step"
    )
    parser.add_argument("--steps", type=int, default=ENDLESS)
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds a step, so that one process can repeat it all"
    )
    parser.add_argument("--result", type=Path, help="where the parameters go")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data, model, inner = make_problem(NUM_SAMPLES, NUM_FEATURES, hidden=128)
    progress = options.progress and options.progress / socket.gethostname()
    with potluck.start("soak", device="cpu") as run:
        prepared, optimizer = run.prepare(model, inner)
        loader = run.loader(data, global_batch=BATCH)
        for _ in run.epochs(1 + options.steps * BATCH // NUM_SAMPLES, max_steps=options.steps):
            for batch, wanted in loader:
                run.backward(nn.functional.cross_entropy(prepared(batch), wanted))
                optimizer.step()
                optimizer.zero_grad()
                if progress:
                    progress.write_text(f"{run.step}\n")
                time.sleep(options.pause)
        if options.result:
            torch.save([parameter.detach() for parameter in model.parameters()], options.result)


if __name__ == "__main__":
    main()
