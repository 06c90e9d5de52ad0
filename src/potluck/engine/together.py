"""A group of workers that share a lighthouse: who is here, who takes which samples, one verdict a step."""

import hashlib
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from torch import Tensor, nn
from torch.distributed.distributed_c10d import AllreduceOptions
from torchft import Manager

from potluck.core.errors import GroupError
from potluck.engine.backend import own_nccl
from potluck.engine.balance import Balance
from potluck.engine.bench import Bench
from potluck.engine.exchange import Contribution, GradientExchange, are_whole
from potluck.engine.fingerprint import fingerprint
from potluck.engine.gloo import GlooOnDevice
from potluck.engine.group import Lost, Total
from potluck.engine.listening import open_gloo
from potluck.engine.membership import Membership, Place, States
from potluck.engine.patience import Patience
from potluck.engine.position import Slice
from potluck.engine.roster import Member, Roster, RosteredGroup, tell_changes
from potluck.engine.state_wire import chunks
from potluck.measuring.sources import exchange_of
from potluck.measuring.step_timer import StepTimer
from potluck.planning.costs import Exchange
from potluck.planning.rebalance import Told
from potluck.planning.split import split_by_shares

_FORM_S = 10.0
_LONELY_S = 5.0
_DIGEST_BYTES = 1 << 24


class Together:
    """torchft's membership and Gloo, arranged for exact data-parallel training."""

    def __init__(
        self,
        place: Place,
        *,
        say: Callable[[str], None],
        leave: Callable[[], None],
        balance: Balance,
        timer: StepTimer,
    ) -> None:
        self._leave = leave
        self._place = place
        self._balance = balance
        self._timer = timer
        self._told: list[Told] = []
        self._formed = 0
        self._say = say
        self._patience = Patience()
        self._evaluation_patience = Patience(num_known=1)
        self._evaluating_since = 0.0
        self._device, self._gloo_line = open_gloo(place.listening)
        self._group = RosteredGroup(
            timedelta(seconds=_FORM_S),
            self._me,
            place.backend,
            place.secret,
            lambda timeout: GlooOnDevice(timeout, self._device),
        )
        self._membership = self._enlist()
        self._exchange: GradientExchange | None = None
        self._fingerprint = ""
        self._weights: Callable[[], str] = str
        self._state_bytes = 0
        self._capture: Callable[[], dict[str, Any]] | None = None
        self._restore: Callable[[dict[str, Any]], None] | None = None
        self._is_stopping: Callable[[], bool] = bool
        self._bench: Bench | None = None
        self._practice = Total(1.0, 0.0, 1.0)
        self._roster: Roster | None = None
        self._settled: Roster | None = None
        self._batch_of: Callable[[int], int] | None = None
        self._part = Slice(0, 0, 0)
        self._batch = 0
        self._is_spoiled = False
        self._is_steady = False
        self._is_presumed = False
        self._someone_leaves = False
        self._has_told_stranger = self._has_told_the_open = False
        self._began_at = self._committed_at = time.monotonic()

    # Setting up

    def wrap(
        self,
        model: nn.Module,
        capture: Callable[[], dict[str, Any]],
        restore: Callable[[dict[str, Any]], None],
        is_stopping: Callable[[], bool],
    ) -> nn.Module:
        self._is_stopping = is_stopping
        self._fingerprint = fingerprint(model)
        self._state_bytes = 4 * sum(p.numel() * p.element_size() for p in model.parameters())
        self._capture, self._restore = capture, restore
        self._weights = lambda: _digest(model.state_dict().values())
        self._exchange = GradientExchange(
            model, lambda: self._membership.manager, self._group, self._patience.timeout, self._timer.gradients_ready
        )
        return self._exchange.wrapped

    def _enlist(self) -> Membership:
        return Membership(self._place, self._group, States(read=self._whole_state, replace=self._heal), self._say)

    def _heal(self, state: dict[str, Any]) -> None:
        """A peer's state replaces this worker's, in the middle of a step."""
        assert self._restore is not None
        self._restore(state)
        self._get_exchange().remember()  # if the step is spoiled, these are the buffers to go back to

    # A step

    def begin(self, step: int, batch_of: Callable[[int], int]) -> Slice:
        if self._bench is not None:
            return self._practise(self._bench, step, batch_of)
        self._batch_of = batch_of
        self._membership.join(step)
        manager = self._membership.manager
        self._get_exchange().remember()
        if self._is_steady:
            # Nothing hints at a change: the group is asked for while this worker computes. Whether the part that it
            # takes in the meantime is right shows before anything is exchanged, and again when all parts are added up.
            self._membership.ask()
            self._is_presumed = True
            self._began_at = time.monotonic()
        else:
            self._roster = self._gather(manager)
            self._plan_anew(self._roster)
            self._began_at = time.monotonic()
            if self._is_spoiled:
                self._note_spoiled(self._roster)
            self._expect_healing(self._roster)
            self._begin_alike(self._roster, manager)
        self._take_part(manager.current_step())
        return self._part

    def expect(self, step: int, batch: int) -> Slice:
        if self._roster is None:
            return Slice(step, 0, batch)
        part = split_by_shares(batch, self._balance.shares(self._roster))[self._roster.mine]
        return Slice(step, part.start, part.stop)

    def exchange_in(self, *, this_pass: bool) -> None:
        # What DDP's no_sync sets, but for a forward pass that the script makes.
        self._get_exchange().wrapped.require_backward_grad_sync = this_pass and self._bench is None

    def announce(self, weight: float, loss_sum: float, scale: float, *, is_last: bool) -> Slice:
        if self._bench is not None:
            self._practice = Total(weight or 1.0, loss_sum, scale)
            return self._part
        if self._is_presumed:
            self._timer.lap("compute_s")
            self._confirm()
            self._timer.lap("exchange_wait_s")
        assert self._roster is not None
        contribution = Contribution(self._part, weight, loss_sum, scale, is_last)
        self._get_exchange().begin(contribution, self._balance.numbers(), self._roster)
        return self._part

    def total(self) -> Total:
        if self._bench is not None:
            return self._practice
        manager = self._membership.manager
        sums, self._told = self._get_exchange().end()
        self._timer.lap("exchange_wait_s")
        if manager.errored() is None and not are_whole(sums, self._part.step, self._batch):
            manager.report_error(RuntimeError(f"the parts do not add up to step {self._part.step}: {sums}"))
            if not self._group.is_new:
                self._say("workers came to different plans; from now on all take equal parts")
                self._balance.distrust()
        self._someone_leaves = sums.leaving > 0
        return Total(sums.weight or 1.0, sums.loss, sums.scale / sums.samples if sums.samples else 1.0)

    def commit(self) -> bool:
        if self._bench is not None:
            self._end_practice(self._bench)
            return False
        manager = self._membership.manager
        committed = bool(manager.should_commit())
        self._get_exchange().settle(committed=committed)
        self._is_spoiled = not committed
        self._is_steady = committed and not self._someone_leaves
        if committed and self._roster is not None:
            now = time.monotonic()
            if self._settled is not None:
                for line in tell_changes(self._settled, self._roster, self._part.step, now - self._committed_at):
                    self._say(line)
            self._patience.committed(now - self._began_at)
            if self._group.is_new:
                self._tell_the_open()
                self._patience.grown()
                self._membership.forget_formation()
            self._balance.committed(self._roster, self._told, self._part.step, *self._plan_for())
            self._committed_at = now
            self._group.is_new = False
            self._settled = self._roster
            if self._balance.benched:
                self._is_steady = False  # the others are gone with the next step
                self._sit_down(self._roster)
        return committed

    def _confirm(self) -> None:
        """Now the group must be known: take no part in a step that it is not at."""
        manager, asked = self._membership.manager, time.monotonic()
        self._is_presumed = False
        self._membership.answer()
        self._began_at += time.monotonic() - asked  # waiting for the lighthouse says nothing about the peers' speed
        if self._group.roster is None or manager.errored() is not None:
            return  # the step is spoiled already
        self._roster = self._group.roster
        self._plan_anew(self._roster)
        self._expect_healing(self._roster)
        if manager.current_step() != self._part.step:
            self._take_part(manager.current_step())
        # Otherwise the part stays. If somebody is missing, the parts do not add up, and the step is tried again; a
        # newcomer that must be healed first brings nothing, and they do.

    def _plan_anew(self, roster: Roster) -> None:
        """A group that has just formed starts from what its members know of themselves."""
        if self._formed != self._group.formation:
            self._formed = self._group.formation
            self._balance.form(roster, roster.step, *self._plan_for())

    def _plan_for(self) -> tuple[int, Exchange]:
        assert self._batch_of is not None
        return self._batch_of(0), exchange_of(self._get_exchange().num_bytes)

    def _take_part(self, step: int) -> None:
        assert self._roster is not None
        assert self._batch_of is not None
        self._batch = self._batch_of(step)
        self._part = self._my_part(self._roster, step)

    def _begin_alike(self, roster: Roster, manager: Manager) -> None:
        """Before the first step together: whoever has built the model with other weights takes the example's."""
        example, me = roster.example, roster.me
        if not self._group.is_new or me.step != roster.step or me.weights in ("", example.weights):
            return
        try:
            self._heal(self._membership.fetch(example.state_address, roster.step))
        except (OSError, GroupError) as error:
            manager.report_error(error)  # it is gone again: the next group has another example

    def _expect_healing(self, roster: Roster) -> None:
        differ = any(m.step != roster.step or m.weights not in ("", roster.example.weights) for m in roster.members)
        if self._group.is_new and differ:
            self._patience.healing(self._state_bytes)

    def _gather(self, manager: Manager) -> Roster:
        """Wait until a group has formed that this worker is in."""
        started, told = time.monotonic(), False
        while True:
            self._membership.ask()
            self._membership.answer()
            roster = self._group.roster
            if roster is None or manager.errored() is not None:
                self._tell_stranger()
                manager.should_commit()  # this attempt is spoiled: the next quorum forms a new group
                self._note_spoiled(roster)
                continue
            if roster.step > 0 or len(roster.members) >= self._place.expected:
                return roster
            if not told and time.monotonic() - started > _LONELY_S:
                told = True
                here = ", ".join(member.name for member in roster.members)
                self._say(f"{len(roster.members)} of {self._place.expected} workers are here ({here}); waiting")
            time.sleep(0.05)

    def _tell_stranger(self) -> None:
        """Nothing is exchanged with somebody who does not know the secret; the group forms when that one is gone."""
        stranger, self._group.stranger = self._group.stranger, ""
        if stranger and not self._has_told_stranger:
            self._has_told_stranger = True
            self._say(
                f"{stranger} does not know this run's secret, and nothing is exchanged with it; training goes on when "
                f"it is gone: see who dials the lighthouse at {self._place.lighthouse}"
            )

    def _tell_the_open(self) -> None:
        """NCCL knows no gates."""
        is_open = self._group.backend == "nccl" and self._place.listening.gate is not None
        if is_open and not self._has_told_the_open:
            self._has_told_the_open = True
            self._say(
                "gradients go from machine to machine in the open (NCCL); all else goes through the gates, "
                "and so do gradients with --backend gloo"
            )

    def _note_spoiled(self, roster: Roster | None) -> None:
        self._is_spoiled = False
        before = set() if self._settled is None else self._settled.names
        now = set() if roster is None else roster.names
        self._patience.spoiled(someone_left=not before <= now)

    def _my_part(self, roster: Roster, step: int) -> Slice:
        takers = roster.participants() if self._group.is_new else list(range(len(roster.members)))
        if roster.mine not in takers:
            return Slice(step, 0, 0)
        shares = self._balance.shares(roster)
        parts = split_by_shares(self._batch, [shares[index] for index in takers])
        part = parts[takers.index(roster.mine)]
        return Slice(step, part.start, part.stop)

    # On the bench

    def _sit_down(self, roster: Roster) -> None:
        """Leave the ring, if this machine is one of those without which a step is shorter."""
        if self._place.machine not in self._balance.benched:
            return
        peers = [m.state_address for m in roster.members if m.machine not in self._balance.benched]
        self._bench = Bench(peers, self._membership.fetch, max(1, self._part.num_samples))
        self._membership.leave()

    def _practise(self, bench: Bench, step: int, batch_of: Callable[[int], int]) -> Slice:
        """Wait, catch up with the others, and take a part that does not count."""
        bench.wait(self._is_stopping)
        state = None if self._is_stopping() else bench.newest_state()
        if state is not None:
            self._heal(state)
            step = int(state["step"])
        bench.begin()
        self._part = Slice(step, 0, min(bench.num_samples, batch_of(step)))
        return self._part

    def _end_practice(self, bench: Bench) -> None:
        """Whatever this step computed is forgotten; what it cost may bring the machine back."""
        self._get_exchange().settle(committed=False)
        if bench.is_over:
            return
        pays = self._balance.practised(self._place.name, self._part.num_samples, bench.seconds())
        if pays or bench.is_deserted:
            self._balance.unbenched(self._place.machine, self._part.step, pays=pays)
            self._bench, self._membership = None, self._enlist()
            self._is_spoiled = self._is_steady = False

    # Between steps

    @property
    def formation(self) -> int:
        return self._group.formation

    @property
    def writes(self) -> bool:
        """The first worker by name writes checkpoints."""
        return self._bench is None and (self._roster is None or self._roster.mine == 0)

    def part_of(self, num_samples: int) -> range:
        self._evaluating_since = time.monotonic()
        if self._is_presumed:  # the script evaluates in the middle of a step
            self._confirm()
        part = self.expect(0, num_samples)
        return range(part.start, part.stop)

    def sum(self, values: Tensor) -> Tensor:
        if self._roster is None or len(self._roster.members) == 1:
            return values
        options = AllreduceOptions()
        options.timeout = self._evaluation_patience.timeout()
        summed = values.to(self._place.device) if self._group.backend == "nccl" else values
        try:
            self._group.allreduce([summed], options).wait(options.timeout)
        except Exception as error:
            self._evaluation_patience.spoiled(someone_left=False)
            raise Lost(str(error)) from error
        self._evaluation_patience.committed(time.monotonic() - self._evaluating_since)
        return summed.to(values.device)

    def finish(self) -> None:
        if self._bench is None and self._settled is not None:
            self._get_exchange().remember()
            self._membership.finish()

    def close(self) -> None:
        if self._settled is not None:
            self._balance.keep()
        self._membership.leave()
        if self._gloo_line is not None:
            self._gloo_line.close()
        self._leave()

    # Plumbing

    def _me(self, num_workers: int) -> Member:
        return Member(
            name=self._place.name,
            machine=self._place.machine,
            share=self._place.share,
            step=self._membership.manager.current_step(),
            state_address=self._membership.state_address,
            model=self._fingerprint,
            nccl=own_nccl(self._place.device),
            weights=self._weights() if self._settled is None else "",
            policy=self._balance.wishes.policy,
            keep=self._balance.wishes.keep,
            told=self._balance.introduction(self._plan_for()[0] // num_workers).floats,
            link=() if (link := self._balance.link) is None else (link.latency_s, link.bandwidth_bytes_per_s),
        )

    def _whole_state(self) -> dict[str, Any]:
        assert self._capture is not None
        state = self._capture()
        state["model"] = self._get_exchange().between_steps(state["model"])
        return state

    def _get_exchange(self) -> GradientExchange:
        assert self._exchange is not None
        return self._exchange


def _digest(tensors: Iterable[Tensor]) -> str:
    """A digest of what is in the tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        for piece in chunks(tensor, _DIGEST_BYTES):
            digest.update(piece)
    return digest.hexdigest()[:16]
