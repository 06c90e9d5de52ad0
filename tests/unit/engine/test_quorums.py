"""After a restart of the lighthouse, either all members of a quorum form a group or none does."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from potluck.engine.group.quorums import Quorum, QuorumChoice, QuorumHistory


@dataclass
class Worker:
    """A worker as torchft sees it: the number of its group, its step, whether its last step failed."""

    name: str
    history: QuorumHistory = field(default_factory=QuorumHistory)
    number: int = -1
    group: object = None
    step: int = 0
    has_failed: bool = False


class Lighthouse:
    """torchft's numbering."""

    def __init__(self):
        self.number = 0
        self.members = None

    def quorum(self, workers):
        members = tuple(sorted(worker.name for worker in workers))
        if members != self.members or any(worker.has_failed for worker in workers):
            self.number += 1
        self.members = members
        return Quorum(self.number, members, len({worker.step for worker in workers}) == 1)


def one_step(lighthouse, workers, *, fails=False):
    """A quorum and a step of these workers; the law is that nobody waits for one who keeps its old group."""
    quorum, formed, declined = lighthouse.quorum(workers), [], []
    new_group = object()
    for worker in workers:
        verdict = worker.history.judge(quorum)
        if verdict is QuorumChoice.DECLINE:
            declined.append(worker)
        elif verdict is QuorumChoice.FORM_ANEW or quorum.number != worker.number:
            worker.group = new_group
            formed.append(worker)
        worker.number = quorum.number
    assert len(formed) in (0, len(workers)), f"{formed} wait for the others in {quorum}"
    has_failed = fails or bool(declined) or len({worker.group for worker in workers}) > 1
    newest = max(worker.step for worker in workers)
    for worker in workers:
        worker.has_failed = has_failed
        worker.step = worker.step if has_failed else newest + 1
    return not has_failed


@given(num_workers=st.integers(1, 4), data=st.data())
def test_workers_that_find_a_restarted_lighthouse_one_by_one_never_wait_in_vain(num_workers, data):
    workers = [Worker(name) for name in "ABCD"[:num_workers]]
    for _ in range(data.draw(st.integers(1, 4), label="lighthouses")):
        lighthouse, here = Lighthouse(), []
        for worker in data.draw(st.permutations(workers), label="order of arrival"):
            here.append(worker)
            for fails in data.draw(st.lists(st.booleans(), max_size=3), label="failed steps meanwhile"):
                one_step(lighthouse, here, fails=fails)
        for _ in range(3):
            one_step(lighthouse, workers)
        assert one_step(lighthouse, workers), "the group forms, and stays"


def test_a_number_that_comes_back_is_not_the_old_group():
    history, all_three = QuorumHistory(), ("A", "B", "C")
    assert history.judge(Quorum(3, all_three, True)) is QuorumChoice.BY_NUMBER
    assert history.judge(Quorum(3, ("A", "B"), True)) is QuorumChoice.FORM_ANEW
    assert history.judge(Quorum(3, ("A", "B"), False)) is QuorumChoice.FORM_ANEW
    assert history.judge(Quorum(4, all_three, True)) is QuorumChoice.BY_NUMBER
    assert history.judge(Quorum(2, ("A",), True)) is QuorumChoice.FORM_ANEW
    assert history.judge(Quorum(3, ("A", "B"), True)) is QuorumChoice.BY_NUMBER
    assert history.judge(Quorum(4, all_three, True)) is QuorumChoice.DECLINE
    assert history.judge(Quorum(5, all_three, True)) is QuorumChoice.BY_NUMBER
