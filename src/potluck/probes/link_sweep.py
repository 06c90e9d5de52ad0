"""One machine's process in a sweep of all links: reads an order as a line of JSON, and prints the result as another."""

import json
import sys
from datetime import timedelta
from typing import Any

import torch

from potluck.measuring.link_sweep import sweep_links
from potluck.planning.costs import LinkProfile
from potluck.probes.rendezvous import meet

_MEET_S = 60.0  # other machines' processes may still be importing torch


def main() -> None:
    """Run one sweep."""
    wanted = json.loads(sys.stdin.readline())
    print(json.dumps(sweep_once(wanted)), flush=True)  # noqa: T201  the agent reads it


def sweep_once(wanted: dict[str, Any]) -> dict[str, Any]:
    """Meet the other machines' processes at rank 0's store, and measure all links."""
    torch.set_num_threads(1)
    rank, names, timeout = wanted["rank"], wanted["machines"], timedelta(seconds=_MEET_S)
    met = meet(wanted, timeout)
    found = sweep_links(met.store, rank, names, met.device, timeout_s=_MEET_S)
    # The store ends with rank 0's process, and other ranks may still be reading from it.
    met.store.set(f"done/{rank}", "")
    if rank == 0:
        met.store.wait([f"done/{other}" for other in range(len(names))], timeout)
    return {
        "ring": _seen(found.ring),
        "pairs": {"-".join(pair): _seen(link) for pair, link in found.pairs.items()},
        "machines": {name: _seen(link) for name, link in found.of_each().items()},
    }


def _seen(link: LinkProfile) -> dict[str, float]:
    return {"latency_s": link.latency_s, "bytes_per_s": link.bandwidth_bytes_per_s, "error": link.error}


if __name__ == "__main__":
    main()
