"""Notices of a group for the person at this machine, except about workers that join or leave."""

from collections.abc import Callable, Sequence

from potluck.engine.group.direct_probe import find_unreachable
from potluck.engine.group.nccl import NcclGroups
from potluck.engine.group.place import Place
from potluck.engine.group.roster import Member
from potluck.events.progress_lines import variables_text
from potluck.events.types import AnyEvent, BackendChosen, Waiting
from potluck.planning.backend_choice import BackendChoice
from potluck.planning.replanning.exchange_choice import ExchangeChoice


class GroupNotices:
    """Writes the notices of a group, some of them only once."""

    def __init__(self, place: Place, say: Callable[[str], None], tell: Callable[[AnyEvent], None]) -> None:
        self.say = say
        self._place = place
        self.tell = tell
        self._has_told_stranger = self._has_told_the_open = False
        self._choice: tuple[BackendChoice, ExchangeChoice] | None = None

    def stranger(self, who: str) -> None:
        """Say, once, that `who` does not know the run's secret: no group forms until that process is gone."""
        if who and not self._has_told_stranger:
            self._has_told_stranger = True
            self.say(
                f"{who} does not know this run's secret, and nothing is exchanged with it; training goes on when "
                f"it is gone: see who dials the lighthouse at {self._place.lighthouse}"
            )

    def backend(self, choice: BackendChoice, exchange: ExchangeChoice, step: int, nccl: NcclGroups) -> None:
        """Write a BackendChosen event if the choice is another than before; with NCCL, name its variables in force."""
        if (choice, exchange) == self._choice:
            return
        self._choice = choice, exchange
        is_nccl = choice.backend == "nccl"
        chosen = BackendChosen(
            step=step,
            backend=choice.backend,
            reason=choice.reason,
            through_host=choice.through_host,
            held_back_by=list(choice.held_back_by),
            variables=nccl.in_force() if is_nccl else {},
            defaults=sorted(nccl.defaults or {}) if is_nccl else [],
            exchange=exchange.mode,
            exchange_reason=exchange.reason,
            warm_up_steps=exchange.warm_up_steps or 0,
            islands=[list(island) for island in exchange.islands] if exchange.mode == "islands" else [],
        )
        self.tell(chosen)
        if text := variables_text(chosen):
            self.say(f"NCCL on {self._place.machine}: {text}")

    def in_the_open(self, backend: str) -> None:
        """Say, once, that gradients are not encrypted: NCCL cannot use gates."""
        is_open = backend == "nccl" and self._place.listening.gate is not None
        if is_open and not self._has_told_the_open:
            self._has_told_the_open = True
            self.say(
                "gradients go from machine to machine in the open (NCCL); all else goes through the gates, "
                "and so do gradients with --backend gloo"
            )

    def wait(self, seconds: float, what: str, *, step: int, announced: Sequence[Member], problem: str) -> None:
        """Write a Waiting event. Runs on the thread of `LongWaits`, while the training thread waits."""
        others = {m.machine: m.gradient_address for m in announced if m.gradient_address}
        others.pop(self._place.machine, None)
        unreachable = find_unreachable(others)
        self.tell(Waiting(step=step, seconds=seconds, what=what, unreachable=unreachable, problem=problem))
        if self._place.listening.gate is None:  # no host reads the event: print a line for the person at this machine
            cannot = f"; this machine cannot dial {', '.join(unreachable)}" if unreachable else ""
            self.say(f"no step for {seconds:.0f} s: {self._place.name} waits for the others ({what}){cannot}")
