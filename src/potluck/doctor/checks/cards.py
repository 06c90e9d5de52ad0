"""Checks of one machine's graphics cards: whether other programs take their memory or their time."""

from potluck.core.cards import short_name
from potluck.core.words import listed
from potluck.doctor.check import MachineCheck, Verdict, ok, unknown, warn
from potluck.doctor.checks.resources import in_bytes
from potluck.doctor.examination import IntendedRun
from potluck.doctor.finding import by_hand
from potluck.machine.facts import Facts, Gpu

MUCH_MEMORY = 0.2  # of the card; a desktop and a browser take less
MUCH_TIME = 0.2
_MOST_NAMED = 4


def card_shared(facts: Facts, plan: IntendedRun) -> Verdict:
    """Other programs on a card take memory from the batch and time from the steps."""
    if not facts.gpus:
        return ok("no graphics card whose programs could be listed")
    verdicts = [_judge(facts, card) for card in facts.gpus]
    return next((one for one in verdicts if one is not None), ok("no other program takes much of a graphics card"))


def _judge(facts: Facts, card: Gpu) -> Verdict | None:
    """The verdict on one card; None if nobody takes much of it."""
    is_listed = card.programs is not None and facts.wsl is None
    taken = sum(one.memory_bytes for one in card.programs or ()) if is_listed else card.used_bytes or 0
    takes_memory = taken >= MUCH_MEMORY * card.memory_bytes > 0
    takes_time = not card.is_training and (card.busy or 0.0) >= MUCH_TIME
    name = f"{short_name(card.name)} of {facts.machine}"
    if not (takes_memory or takes_time):
        return None
    if not is_listed or (takes_time and not card.programs):
        where = "Task Manager of Windows, Details, column GPU memory" if facts.wsl is not None else "nvidia-smi"
        used = f"{in_bytes(card.used_bytes or 0)} of {in_bytes(card.memory_bytes)} are in use"
        busy = "" if card.busy is None else f", it is busy {100 * card.busy:.0f} % of the time"
        return unknown(
            f"which programs use the {name} is not known: {used}{busy}",
            by_hand(facts.machine, f"if it is not training, look in {where}, and close what you can"),
        )
    programs = [
        f"{one.name} (process {one.pid}{f', {in_bytes(one.memory_bytes)}' if one.memory_bytes else ''})"
        for one in (card.programs or ())[:_MOST_NAMED]
    ]
    what = (
        f"{in_bytes(taken)} of {in_bytes(card.memory_bytes)}"
        if takes_memory
        else f"{100 * (card.busy or 0):.0f} % of the time"
    )
    return warn(
        f"other programs take {what} of the {name}: {listed(programs)}",
        by_hand(
            facts.machine, f"close {listed([one.partition(' (')[0] for one in programs])}, or let it run elsewhere"
        ),
        why="a smaller batch fits beside them, and every step takes longer",
    )


CARDS = (MachineCheck("card-shared", "other programs use the graphics card", card_shared),)
