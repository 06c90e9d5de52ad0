"""Progress of a run as lines of text: a terminal and a script's stderr show the same words."""

from potluck.core.exchange_options import IN_ROUNDS
from potluck.core.words import counted, duration, listed, number
from potluck.events.recent_speed import RecentSpeed
from potluck.events.state import RunState
from potluck.events.types import BackendChosen, EpochEnded, GroupChanged, PlanChanged, StepCommitted, TrainingBegan


def begin_line(began: TrainingBegan, state: RunState) -> str:
    """The size of the training: parameters, samples, global batch, steps and epochs."""
    return (
        f"{counted(state.num_parameters, 'parameter')}, {counted(began.num_samples, 'sample')}, global batch "
        f"{began.global_batch}, {counted(began.last_step, 'step')} in {counted(began.num_epochs, 'epoch')}"
    )


def step_numbers(step: StepCommitted, samples_per_s: float) -> str:
    """The loss of a step, and the recent throughput."""
    return f"loss {number(step.loss)}  {samples_per_s:,.0f} samples/s"


def step_line(step: StepCommitted, state: RunState, samples_per_s: float, step_s: float) -> str:
    """Epoch, step, loss, throughput, and the time left if every step takes `step_s`."""
    where = f"epoch {step.epoch + 1}/{state.num_epochs}  step {step.step}/{state.last_step}"
    left = duration((state.last_step - step.step) * step_s)
    return f"{where}  {step_numbers(step, samples_per_s)}  {left} left"


def own_step_line(step: StepCommitted, state: RunState, own: tuple[str, int], speed: RecentSpeed) -> str:
    """Step, one machine's name and share of the batch (`own`), its part of the throughput, and the time left."""
    machine, share = own
    own_samples_per_s = speed.samples_per_s * share / step.samples if step.samples else 0.0
    speeds = f"{own_samples_per_s:,.0f} of {speed.samples_per_s:,.0f} samples/s"
    part = f"{machine} {share} of {step.samples} samples  {speeds}"
    left = duration((state.last_step - step.step) * speed.step_s)
    return f"step {step.step}/{state.last_step}  {part}  {left} left"


def epoch_line(ended: EpochEnded, state: RunState) -> str:
    """Duration, mean loss and throughput of a finished epoch."""
    speed = ended.samples / ended.seconds if ended.seconds else 0.0
    where = f"epoch {ended.epoch + 1}/{state.num_epochs} done in {duration(ended.seconds)}"
    return f"{where}: loss {number(ended.loss)}, {speed:,.0f} samples/s"


def group_lines(changed: GroupChanged) -> list[str]:
    """One line for each machine that left or joined, or for each worker where only some workers of a machine did."""
    goes = "goes" if changed.num_machines == 1 else "go"
    go_on = f"{counted(changed.num_machines, 'machine')} {goes} on ({changed.stall_s:.1f} s)"
    happened = {"left": changed.left, "joined": changed.joined}
    return [
        f"{who} {verb} at step {changed.step}; {go_on}"
        for verb, machines in happened.items()
        for machine, workers in machines.items()
        for who in ([f"a worker of {machine} ({worker})" for worker in workers] or [machine])
    ]


def backend_text(chosen: BackendChosen) -> str:
    """How gradients are exchanged, and why."""
    name = {"gloo": "Gloo", "nccl": "NCCL"}.get(chosen.backend, chosen.backend)
    text = f"{name}{' through host memory' if chosen.through_host else ''}, because {chosen.reason}"
    return f"{text}; {how}" if (how := _exchange_text(chosen)) else text


def _exchange_text(chosen: BackendChosen) -> str:
    """In which form gradients or weights travel; empty for gradients in fp32."""
    why = f" ({chosen.exchange_reason})" if chosen.exchange_reason else ""
    if chosen.exchange not in IN_ROUNDS:
        return f"as {chosen.exchange}{why}" if chosen.exchange != "exact" or why else ""
    together = [" and ".join(island) for island in chosen.islands if len(island) > 1]
    islands = f", with {', '.join(together)} together in every step" if together else ""
    return f"as int4 up to step {chosen.warm_up_steps}, then in rounds{islands}{why}"


def backend_lines(chosen: BackendChosen) -> list[str]:
    """The line of a chosen backend, and a line about NCCL if some machines stand in its way."""
    return [f"gradients: {backend_text(chosen)}", *([held_back_text(chosen)] if chosen.held_back_by else [])]


def held_back_text(chosen: BackendChosen) -> str:
    """Which machines keep the others from NCCL, and how to find out what that costs."""
    names = ",".join(chosen.held_back_by)
    return (
        f"without {listed(chosen.held_back_by)} the others would use NCCL; whether that is faster is not measured: "
        f"train a few steps with --machines that leave {names} out, then potluck compare"
    )


def variables_text(chosen: BackendChosen) -> str:
    """NCCL's variables in force, and which of them Potluck has set; empty if there are none."""
    return ", ".join(
        f"{name}={value} ({'set by Potluck' if name in chosen.defaults else 'yours'})"
        for name, value in chosen.variables.items()
    )


def machine_shares(plan: PlanChanged) -> dict[str, int]:
    """Each machine's samples of a global batch: the shares of all its workers."""
    shares: dict[str, int] = {}
    for worker, share in plan.shares.items():
        machine = plan.machines.get(worker, worker)
        shares[machine] = shares.get(machine, 0) + share
    return shares


def plan_line(plan: PlanChanged, before: dict[str, int]) -> str:
    """Each machine's share, with its share in the plan `before` where that was another, and the predicted speed."""
    shares = machine_shares(plan)
    parts = []
    for machine in [*shares, *(one for one in before if one not in shares)]:
        now, then = shares.get(machine, 0), before.get(machine)
        parts.append(f"{machine} {now}" if then in (None, now) else f"{machine} {then} -> {now}")
    predicted = f"; predicted {plan.samples_per_s:,.0f} samples/s" if plan.samples_per_s > 0 else ""
    return f"plan: {', '.join(parts)} of {sum(shares.values())}{predicted}"
