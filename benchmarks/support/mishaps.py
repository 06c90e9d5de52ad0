"""What goes wrong on machines that have joined a host, at random: everything that the page on losses names.

A mishap touches one machine, or the link between two, and is mended some seconds later. More than half of the machines
are never touched at a time, so that there is always a majority which can go on.
"""

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from benchmarks.support.household import NAMES, Household, say
from lab.cluster import FirewallRule

LASTS_S = (3.0, 20.0)
LONGEST_RETURN_S = 120.0  # a machine that trains again later than this after it was mended is a defect
# Of HostLosses: half are the host's, from there up to here a successor's, the rest anybody's.
_HOST_PART, _SUCCESSOR_PART = 0.5, 0.8
Mend = Callable[[], object]


class Mishaps:
    """What is broken at the moment, and how and when it is mended."""

    def __init__(self, household: Household, chance: random.Random) -> None:
        self.count: Counter[str] = Counter()
        self.slowest_return_s = 0.0
        self._household = household
        self._lab = household.gathering.lab
        self._chance = chance
        self._broken: dict[str, tuple[float, Mend]] = {}
        self._returning: dict[str, float] = {}

    def strike(self) -> None:
        """Break something, unless a majority of untouched machines would be in danger."""
        well = [name for name in NAMES if name not in self._broken and name not in self._returning]
        if len(well) < len(NAMES) - 1 or not all(self._household.trains(name) for name in well):
            return
        status = self._household.status()
        host = str(status.get("host", ""))
        name = self._choose(well, status)
        kind = self._chance.choice([kind for kind in self._kinds if name != host or kind != "leaves"])
        mend = self._kinds[kind](self, name)
        if mend is None:
            return
        role = " (the host)" if name == host else ""
        self.count[f"{kind}{role}"] += 1
        self._broken[name] = (time.monotonic() + self._chance.uniform(*LASTS_S), mend)
        say(f"{name}{role}: {kind}")

    def _choose(self, well: list[str], _: dict[str, Any]) -> str:
        """The machine to strike, of those that are well; with the status of the host of now."""
        return self._chance.choice(well)

    def mend(self, *, all_of_them: bool = False) -> None:
        """What has been broken for long enough; and note who trains again."""
        for name, (when, mend) in list(self._broken.items()):
            if all_of_them or time.monotonic() >= when:
                del self._broken[name]
                mend()
                self._returning[name] = time.monotonic()
                say(f"{name}: mended")
        for name, since in list(self._returning.items()):
            waited = time.monotonic() - since
            if waited > 2.0 and self._household.trains(name):
                del self._returning[name]
                self.slowest_return_s = max(self.slowest_return_s, waited)
            elif waited > LONGEST_RETURN_S:
                output = self._household.gathering.printed(self._household.agents[name])
                raise AssertionError(f"{name} does not train {waited:.0f} s after it was mended:\n{output[-3000:]}")

    def are_over(self) -> bool:
        """Whether all machines train, as far as anybody knows."""
        return not self._broken and not self._returning

    # Kinds of mishaps: each breaks something on the machine, and returns what mends it

    def _kill_worker(self, name: str) -> Mend:
        self._lab[name].run(["pkill", "-KILL", "-f", "potluck.meeting.workers.fork_server"])
        return _nothing

    def _kill(self, name: str) -> Mend:
        self._lab[name].kill()
        return lambda: self._household.come_back(name)

    def _freeze(self, name: str) -> Mend:
        self._lab[name].freeze(kernel_answers=self._chance.random() < 0.5)
        return self._lab[name].thaw

    def _cut(self, name: str) -> Mend:
        self._lab[name].cut()
        return self._lab[name].mend

    def _cut_one_way(self, name: str) -> Mend:
        rules = [FirewallRule(action="drop", direction="in", abrupt=True)]
        if self._chance.random() < 0.5:
            rules = [FirewallRule(action="drop", direction="out", abrupt=True)]
        return self._drop(name, *rules)

    def _cut_pair(self, name: str) -> Mend:
        peer = self._chance.choice([other for other in NAMES if other != name])
        inward = FirewallRule(action="drop", direction="in", peer=peer, abrupt=True)
        outward = FirewallRule(action="drop", direction="out", peer=peer, abrupt=True)
        return self._drop(name, inward, outward)

    def _drop(self, name: str, *rules: FirewallRule) -> Mend:
        self._lab[name].set_firewall(rules)
        return lambda: self._lab[name].set_firewall(())

    def _fill_disk(self, name: str) -> Mend:
        self._household.fill_disk(name)
        return lambda: self._household.empty_disk(name)

    def _jump(self, name: str) -> Mend:
        self._household.set_clock(name, self._chance.choice((-1, 1)) * self._chance.choice((30, 600, 7200)))
        return lambda: self._household.set_clock(name, 0)

    def _slow(self, name: str) -> Mend:
        cores = self._lab[name].cores()
        self._lab[name].slow(cores / 3)
        return lambda: self._lab[name].slow(cores)

    def _hand_over(self, name: str) -> Mend | None:
        code, output = self._household.gathering.run(name, "handover", name)
        if code:
            say(f"handover to {name} is refused: {output.strip()}")
            return None
        return _nothing

    def _leave(self, name: str) -> Mend:
        self._household.gathering.run(name, "leave")
        return lambda: self._household.come_back(name)

    _kinds: ClassVar[dict[str, Callable[["Mishaps", str], Mend | None]]] = {
        "worker killed": _kill_worker,
        "killed": _kill,
        "frozen": _freeze,
        "cut off": _cut,
        "cut one way": _cut_one_way,
        "cut from one other": _cut_pair,
        "disk full": _fill_disk,
        "clock jumps": _jump,
        "slow": _slow,
        "becomes the host": _hand_over,
        "leaves": _leave,
    }


class HostLosses(Mishaps):
    """Losses of machines and links, and of the host and its successors more often than of others."""

    def _choose(self, well: list[str], status: dict[str, Any]) -> str:
        host, successors = str(status.get("host", "")), status.get("succession", {}).get("successors", [])
        draw = self._chance.random()
        if draw < _HOST_PART and host in well:
            return host
        among = [name for name in well if name in successors] if draw < _SUCCESSOR_PART else []
        return self._chance.choice(among or well)

    _kinds: ClassVar[dict[str, Callable[["Mishaps", str], Mend | None]]] = {
        kind: strike
        for kind, strike in Mishaps._kinds.items()
        if kind in {"killed", "frozen", "cut off", "cut one way", "cut from one other"}
    }


def _nothing() -> None:
    """What mends itself."""
