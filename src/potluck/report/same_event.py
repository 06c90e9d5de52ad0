"""When two workers tell of the same thing: every worker tells of plans, epochs and changes of the group."""

from potluck.events.types import (
    AnyEvent,
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
    """What the events of two workers about the same thing have in common, and no other event has."""
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
        case GroupChanged(step=step, joined=joined, left=left):  # how long it stood still, each says for itself
            return "group", step, *joined, "left", *left
        case LossDiverged(step=step):
            return "diverged", step
        case PlanChanged(step=step):
            return "plan", step
        case MachineBenched(step=step, machine=machine) | MachineUnbenched(step=step, machine=machine):
            return type(event), step, machine
    return type(event)
