"""One machine's part of a sweep of all links: a process that reads a line of JSON and prints one."""

import json
import sys
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from potluck.core.environment import use_gloo_interface
from potluck.engine.addresses import address_towards, interface_of
from potluck.measuring.link_sweep import sweep_links
from potluck.planning.costs import LinkProfile

_MEET_S = 60.0  # the others may still be importing torch


def main() -> None:
    """Sweep once."""
    wanted = json.loads(sys.stdin.readline())
    print(json.dumps(sweep_once(wanted)), flush=True)  # noqa: T201  whoever asked reads it


def sweep_once(wanted: dict[str, Any]) -> dict[str, Any]:
    """Meet the others where the first machine waits, and measure."""
    torch.set_num_threads(1)
    rank, names, meeting = wanted["rank"], wanted["machines"], wanted["meeting"]
    use_gloo_interface(interface_of(address_towards(meeting)))
    timeout = timedelta(seconds=_MEET_S)
    store = TCPStore(meeting, wanted["port"], is_master=rank == 0, wait_for_workers=False, timeout=timeout)
    found = sweep_links(store, rank, names, timeout_s=_MEET_S)
    # The store goes with its process: the others may still be reading.
    store.set(f"done/{rank}", "")
    if rank == 0:
        store.wait([f"done/{other}" for other in range(len(names))], timeout)
    return {
        "ring": _seen(found.ring),
        "pairs": {"-".join(pair): _seen(link) for pair, link in found.pairs.items()},
        "machines": {name: _seen(link) for name, link in found.of_each().items()},
    }


def _seen(link: LinkProfile) -> dict[str, float]:
    return {"latency_s": link.latency_s, "bytes_per_s": link.bandwidth_bytes_per_s, "error": link.error}


if __name__ == "__main__":
    main()
