"""Potluck under Ray: Ray starts one worker on each of its nodes, and Potluck trains over them.

    python deploy/ray_workers.py --workers 4 -- train --model resnet18 --dataset cifar10 --experiment-name four

What follows `--` goes to `potluck`. Ray only places the workers: a worker that is lost costs the others a second, and
Ray starts it again, as often as --restarts says; it takes the others' state and goes on.
"""

import argparse
import os
import secrets
import socket
import subprocess
import sys

import ray

from potluck.engine.group.lighthouse import start_lighthouse


def main() -> None:
    """Start a lighthouse here and a worker on each node, and wait for all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cpus", type=float, default=1.0, help="cores that Ray keeps for each worker")
    parser.add_argument("--gpus", type=float, default=0.0, help="cards that Ray keeps for each worker")
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("command", nargs="+", help="what potluck is told, after --")
    options = parser.parse_args()
    ray.init(log_to_driver=True)
    address = ray.util.get_node_ip_address()
    with socket.socket() as taken:
        taken.bind((address, 0))
        port = taken.getsockname()[1]
    lighthouse = start_lighthouse(f"{address}:{port}")
    told = {
        "POTLUCK_LIGHTHOUSE": f"http://{address}:{port}",
        "POTLUCK_SECRET": secrets.token_hex(16),
        "POTLUCK_WORKERS": str(options.workers),
    }
    work = ray.remote(worker).options(
        num_cpus=options.cpus, num_gpus=options.gpus, max_retries=options.restarts, scheduling_strategy="SPREAD"
    )
    ended = ray.get([work.remote({**told, "POTLUCK_WORKER": str(n)}, options.command) for n in range(options.workers)])
    lighthouse.shutdown()
    sys.exit(max(ended))


def worker(told: dict[str, str], command: list[str]) -> int:
    """One worker, in a process of its own: its exit code."""
    words = [sys.executable, "-m", "potluck", *command]
    return subprocess.run(words, env={**os.environ, **told}, check=False).returncode


if __name__ == "__main__":
    main()
