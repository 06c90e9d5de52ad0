"""Who writes plans: few workers of a large group, since each plan lists all of them."""

from potluck.events.types import MachineBenched, Notice, PlanChanged
from potluck.planning.replanning.announcements import is_written_by, plan_writers

MACHINES = [f"m{number:03d}" for number in range(100) for _ in range(2)]  # two workers each
PLAN = PlanChanged(step=1, policy="dynamic", shares={}, reason="", step_s=1.0, samples_per_s=1.0)


def writers_of(event, machines=MACHINES):
    writers = plan_writers(machines)
    return [machine for machine in dict.fromkeys(machines) if is_written_by(machine, event, writers)]


def test_all_machines_of_a_small_group_write_plans_and_twenty_of_a_large_one():
    assert writers_of(PLAN, MACHINES[:40]) == list(dict.fromkeys(MACHINES[:40]))
    assert writers_of(PLAN) == list(dict.fromkeys(MACHINES))[:20]


def test_a_benched_machine_writes_that_it_is_benched():
    benched = MachineBenched(step=1, machine="m050", reason="slow", samples_per_s=1.0, samples_per_s_with_it=0.5)
    assert writers_of(benched) == [*writers_of(PLAN), "m050"]


def test_all_machines_write_everything_else():
    assert writers_of(Notice(text="hello")) == list(dict.fromkeys(MACHINES))
