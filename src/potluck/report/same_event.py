"""Finds events of several workers about the same fact: every worker writes plans, epochs and changes of the group."""

from potluck.events.types import (
    AnyEvent,
    BackendChosen,
    EpochEnded,
    Evaluated,
    GroupChanged,
    LinePrinted,
    LossDiverged,
    MachineBenched,
    MachineUnbenched,
    Notice,
    PlanChanged,
    RunResumed,
)


def key_of(event: AnyEvent) -> object:  # noqa: PLR0911  one return an event type
    """A key that events of two workers share if they are about the same fact; for other kinds, the event's type."""
    match event:
        case EpochEnded(epoch=epoch):
            return "epoch", epoch
        case Evaluated(step=step, name=name):
            return "evaluated", step, name
        case LinePrinted(step=step, number=number):
            return "printed", step, number
        case Notice(text=text):
            return "notice", text
        case RunResumed(step=step, checkpoint=checkpoint):
            return "resumed", step, checkpoint
        case GroupChanged(step=step, joined=joined, left=left):  # each worker measures its own stall_s
            return "group", step, *joined, "left", *left
        case BackendChosen(step=step, backend=backend, reason=reason, exchange=exchange):
            return "backend", step, backend, reason, exchange
        case LossDiverged(step=step):
            return "diverged", step
        case PlanChanged(step=step):
            return "plan", step
        case MachineBenched(step=step, machine=machine) | MachineUnbenched(step=step, machine=machine):
            return type(event), step, machine
    return type(event)
