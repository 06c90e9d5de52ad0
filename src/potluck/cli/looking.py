"""A quick look at this machine before a command that needs others."""

from collections.abc import Callable

from potluck.doctor.checks.quick import quick_failures
from potluck.doctor.examination import IntendedRun
from potluck.machine.facts import Facts
from potluck.machine.snapshot import take_facts


def look_here(tell: Callable[[str], None], *, is_host: bool = False) -> Facts:
    """This machine without torch's own words; what stops training is told, a line each."""
    facts = take_facts(with_torch=False)
    for line in quick_failures(facts, IntendedRun(is_host=is_host)):
        tell(f"doctor: {line}")
    return facts
