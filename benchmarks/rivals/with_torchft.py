"""A replica of torchft: the byte model under torchft's own DiLoCo or LocalSGD over Gloo.

python -m benchmarks.rivals.with_torchft --machine rosa --folder FOLDER --address 10.77.0.1 --seconds 60 ...
"""

import argparse
import os
from datetime import timedelta
from pathlib import Path

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torchft import Manager, ProcessGroupGloo
from torchft.local_sgd import DiLoCo, LocalSGD

from benchmarks.rivals.recording import Recording, rate_after
from benchmarks.support.byte_model import losses, make, windows
from benchmarks.support.lab_machines import wait_for_go


def main() -> None:
    """Train for so many seconds, or until another replica has ended."""
    options = read_options()
    model, inner = make(options.rows, 0)
    for group in inner.param_groups:
        group["lr"] = options.learning_rate
    texts, targets = windows(65536, seed=1 + options.number).training.tensors
    losses(model, texts[:2], targets[:2]).mean().backward()  # type: ignore[no-untyped-call]
    inner.zero_grad()
    store = TCPStore(options.address, 0, is_master=True, wait_for_workers=False)
    manager = make_manager(options, model, inner, store.port)
    schedule = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: rate_after(step * options.global_batch))
    if options.method == "diloco":
        outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        method = DiLoCo(manager, [model], inner, outer, sync_every=options.sync_every)
    else:
        method = LocalSGD(manager, model, inner, sync_every=options.sync_every)
    wait_for_go(options.folder / "go")
    recording = Recording(options.folder / "record", options.machine, saves=options.number == 0)
    step = 0
    with method:
        while not (options.folder / "over").exists() and step < options.rounds * options.sync_every:
            place = step * options.local_batch % (len(texts) - options.local_batch)
            part = slice(place, place + options.local_batch)
            losses(model, texts[part], targets[part]).mean().backward()  # type: ignore[no-untyped-call]
            inner.step()
            schedule.step()
            inner.zero_grad()
            step += 1
            recording.trained(options.local_batch)
            if step % options.sync_every == 0:
                recording.look_at(model)
                if recording.seconds > options.seconds:
                    break
    recording.close()
    (options.folder / "over").touch()
    print(f"exchanges {manager.current_step()}, took part in the last: {manager.num_participants()}", flush=True)
    manager.shutdown(wait=False)
    os._exit(0)  # torchft's threads wait for replicas that have ended


def read_options() -> argparse.Namespace:
    """The arguments of one replica."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--replicas", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--address", required=True, help="of this machine")
    parser.add_argument("--lighthouse", required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True, help="end after so many exchanges")
    parser.add_argument("--seconds", type=float, required=True, help="end after the first exchange beyond this time")
    parser.add_argument("--method", choices=("diloco", "local-sgd"), required=True)
    parser.add_argument("--sync-every", type=int, required=True)
    parser.add_argument("--local-batch", type=int, required=True)
    parser.add_argument("--global-batch", type=int, required=True)
    parser.add_argument("--learning-rate", type=float, required=True)
    return parser.parse_args()


def make_manager(
    options: argparse.Namespace, model: torch.nn.Module, inner: torch.optim.Optimizer, store_port: int
) -> Manager:
    """A manager as torchft's DiLoCo example makes it, with a store on this machine."""
    return Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=60)),
        min_replica_size=options.replicas,
        load_state_dict=lambda state: (model.load_state_dict(state["model"]), inner.load_state_dict(state["inner"])),
        state_dict=lambda: {"model": model.state_dict(), "inner": inner.state_dict()},
        use_async_quorum=False,
        replica_id=options.machine,
        lighthouse_addr=options.lighthouse,
        store_addr=options.address,
        store_port=store_port,
        rank=0,
        world_size=1,
        hostname=options.address,
        timeout=timedelta(seconds=60),
    )


if __name__ == "__main__":
    main()
