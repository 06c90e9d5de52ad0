"""A quick check of this machine before a command that needs other machines."""

from collections.abc import Callable

from potluck.doctor.checks.quick import quick_failures
from potluck.doctor.examination import IntendedRun
from potluck.machine.facts import Facts
from potluck.machine.snapshot import take_facts


def look_here(tell: Callable[[str], None], *, is_host: bool = False) -> Facts:
    """The facts of this machine, without those from torch; gives `tell` a line for each failure that stops training."""
    facts = take_facts(with_torch=False)
    for line in quick_failures(facts, IntendedRun(is_host=is_host)):
        tell(f"doctor: {line}")
    return facts
