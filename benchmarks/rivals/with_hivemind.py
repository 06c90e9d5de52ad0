"""A peer of hivemind: the byte model under hivemind.Optimizer, as hivemind's own configuration guide sets it up.

python -m benchmarks.rivals.with_hivemind --machine rosa --folder FOLDER --address 10.77.0.1 --seconds 60 ...
"""

import argparse
import time
from pathlib import Path

import hivemind  # type: ignore[import-not-found]
import torch
from hivemind import compression as codes
from torch.optim.lr_scheduler import LambdaLR

from benchmarks.rivals.recording import Recording, rate_after
from benchmarks.support.byte_model import losses, make, windows
from benchmarks.support.lab_machines import wait_for_go

PORT = 31337
BETAS = (0.9, 0.99)


def main() -> None:
    """Train for so many seconds with whoever is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--address", required=True, help="of this machine")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--compression", choices=("fp16", "8bit"), required=True)
    parser.add_argument("--target-batch", type=int, required=True)
    parser.add_argument("--local-batch", type=int, required=True)
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--matchmaking", type=float, required=True)
    parser.add_argument("--delayed", action="store_true", help="average gradients and step in the background")
    parser.add_argument("--local-updates", action="store_true", help="step locally, average parameters")
    options = parser.parse_args()
    model, _ = make(options.rows, 0)
    texts, targets = windows(65536, seed=1 + options.number).training.tensors
    dht = meet(options)
    optimizer = make_optimizer(options, dht, model)
    losses(model, texts[:2], targets[:2]).mean().backward()  # type: ignore[no-untyped-call]
    for parameter in model.parameters():
        parameter.grad = None
    wait_for_go(options.folder / "go")
    recording = Recording(options.folder / "record", options.machine, saves=options.number == 0)
    place = epoch = 0
    while recording.seconds < options.seconds:
        part = slice(place, place + options.local_batch)
        place = (place + options.local_batch) % (len(texts) - options.local_batch)
        optimizer.zero_grad()
        losses(model, texts[part], targets[part]).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        recording.trained(options.local_batch)
        if optimizer.local_epoch != epoch:
            epoch = optimizer.local_epoch
            recording.updated()
            recording.look_at(model)
    recording.close()
    print(f"epochs {optimizer.local_epoch}", flush=True)
    time.sleep(3.0)  # the others may be in the middle of averaging with this peer
    optimizer.shutdown()
    dht.shutdown()


def meet(options: argparse.Namespace) -> "hivemind.DHT":
    """The first machine's peer is the one that the others know."""
    file = options.folder / "peers"
    own = [f"/ip4/{options.address}/tcp/{PORT}"]
    if options.number == 0:
        dht = hivemind.DHT(host_maddrs=own, start=True)
        (options.folder / "peers.new").write_text("\n".join(map(str, dht.get_visible_maddrs())))
        (options.folder / "peers.new").rename(file)
        return dht
    while not file.exists():
        time.sleep(0.2)
    return hivemind.DHT(host_maddrs=own, initial_peers=file.read_text().split(), start=True)


def make_optimizer(options: argparse.Namespace, dht: "hivemind.DHT", model: torch.nn.Module) -> "hivemind.Optimizer":
    """By hivemind's configuration guide; 8-bit as in its ALBERT example: large tensors in 8 bits, small ones in 16."""
    half = codes.Float16Compression()
    mixed = codes.SizeAdaptiveCompression(threshold=2**16 + 1, less=half, greater_equal=codes.Uniform8BitQuantization())
    compression = half if options.compression == "fp16" else mixed
    return hivemind.Optimizer(
        dht=dht,
        run_id="byte_model",
        target_batch_size=options.target_batch,
        batch_size_per_step=options.local_batch,
        params=model.parameters(),
        optimizer=lambda params: torch.optim.AdamW(params, lr=options.learning_rate, betas=BETAS, fused=True),
        scheduler=lambda inner: LambdaLR(inner, lambda epoch: rate_after(epoch * options.target_batch)),
        offload_optimizer=not options.local_updates,
        delay_grad_averaging=options.delayed,
        delay_optimizer_step=options.delayed,
        delay_state_averaging=not options.local_updates,
        use_local_updates=options.local_updates,
        average_state_every=1 if options.local_updates else 32,
        grad_compression=compression,
        state_averaging_compression=compression,
        matchmaking_time=options.matchmaking,
        averaging_timeout=60.0,
        next_chunk_timeout=30.0,  # by default the matchmaking time, too short for a part of 2 MB at 20 Mbit/s
        verbose=True,
        tracker_opts={"min_refresh_period": 0.2, "default_refresh_period": 0.5},
    )


if __name__ == "__main__":
    main()
