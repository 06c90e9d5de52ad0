"""Every lab machine on one processor of its own choice: separate computers do not push each other around.

A quota says how much time a machine gets, not where. Left alone, the kernel now and then puts two busy machines on one
processor while another idles, and steps of the same work differ by a third.
"""

import os
from collections.abc import Mapping, Sequence

from lab import Machine


def pin(machines: Sequence[Machine]) -> dict[str, list[str]]:
    """What to put before each machine's commands; nothing where all of them do not fit."""
    chosen = choose_processors({machine.name: machine.cores() for machine in machines}, sorted(os.sched_getaffinity(0)))
    return {
        machine.name: ["taskset", "--cpu-list", str(chosen[machine.name])] if chosen else [] for machine in machines
    }


def choose_processors(cores: Mapping[str, float], processors: Sequence[int]) -> dict[str, int]:
    """The largest first, each where most is left; empty if some processor would have to give more than itself."""
    left = dict.fromkeys(processors, 1.0)
    chosen = {}
    for name, wanted in sorted(cores.items(), key=lambda item: -item[1]):
        processor = max(left, key=lambda one: left[one])
        left[processor] -= wanted
        chosen[name] = processor
        if left[processor] < -1e-6:
            return {}
    return chosen
