"""Who decides about the host: it changes only while those before agree, and never so that two sides could decide."""

import itertools
import random

from potluck.gates.lease import may_decide
from potluck.gates.messages import Electorate, Touch
from potluck.meeting.host.reign import Reign, SuccessionRule

NAMES = ["rosa", "lily", "fern"]


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def touch(*names, has_lease=True):
    return Touch(host_heard_s=0.0, has_lease=has_lease, newest_term=1, confirmed_by=("rosa", *names))


def reign(*named, clock=None):
    return Reign("rosa", SuccessionRule(named=named), clock=clock or Clock())


def voters(one):
    return [electorate.machines for electorate in one.succession.electorates]


def test_machines_get_a_vote_when_they_confirm_and_lose_it_when_they_do_not():
    clock = Clock()
    host = reign(clock=clock)
    assert voters(host) == [["rosa"]]
    assert host.settle(touch("lily", "fern"), NAMES)
    assert voters(host) == [["rosa", "lily", "fern"]], "nobody of the old electorate but rosa itself: no second one"
    assert host.succession.successors == ["lily", "fern"]
    clock.now += 4.0
    host.settle(touch("lily"), NAMES)
    assert voters(host) == [["rosa", "lily", "fern"], ["rosa", "lily"]], "lily and fern could still decide by the old"
    host.acknowledge("lily", host.succession.number)
    host.settle(touch("lily"), NAMES)
    assert voters(host) == [["rosa", "lily"]]
    assert host.succession.electorates[0].tie_breaker == "rosa"


def test_nothing_changes_without_a_lease():
    clock = Clock()
    host = reign(clock=clock)
    host.settle(touch("lily", "fern"), NAMES)
    clock.now += 10.0
    host.settle(touch(has_lease=False), NAMES)
    assert voters(host) == [["rosa", "lily", "fern"]]
    assert not host.has_lease
    assert "potluck leave lily" in host.lines()[0]


def test_successors_stay_while_the_host_hears_nobody():
    clock = Clock()
    host = reign(clock=clock)
    host.settle(touch("lily", "fern"), NAMES)
    clock.now += 10.0
    host.settle(touch(has_lease=False), NAMES)
    assert host.succession.successors == ["lily", "fern"], "the others elect only whom they know as a successor"
    again = Reign("rosa", SuccessionRule(), host.succession, clock=clock)
    assert again.succession.successors == ["lily", "fern"], "a host that starts again can vote for them, too"


def test_a_successor_whose_link_breaks_for_seconds_keeps_its_place():
    clock, four = Clock(), [*NAMES, "moss"]
    host = reign(clock=clock)
    host.settle(touch("lily", "fern", "moss"), four)
    assert host.succession.successors == ["lily", "fern"]
    clock.now += 4.0
    host.settle(touch("fern", "moss"), four)
    assert host.succession.successors == ["fern", "moss", "lily"], "those that are here come first"
    host.settle(touch("lily", "fern", "moss"), four)
    assert host.succession.successors == ["lily", "fern"], "lily's process is ready, and moss's is not"
    for _ in range(4):
        clock.now += 4.0
        host.settle(touch("fern", "moss"), four)
    assert host.succession.successors == ["fern", "moss"]
    host.settle(touch("lily", "fern", "moss"), four)
    assert host.succession.successors == ["fern", "moss"]


def test_a_mistyped_successor_is_named_once_another_machine_has_joined():
    host = reign("lilly")
    assert host.lines(["rosa"]) == [], "nobody has joined yet"
    (line,) = host.lines(NAMES)
    assert "no machine of that name has joined" in line
    assert "did you mean 'lily'?" in line
    assert reign("lily").lines(NAMES) == []


def test_a_persons_word_ends_a_vote():
    clock = Clock()
    host = reign(clock=clock)
    host.settle(touch("lily", "fern"), NAMES)
    number = host.succession.number
    host.end_vote("lily")
    assert voters(host) == [["rosa", "fern"]]
    assert host.succession.number > number
    assert host.succession.successors == ["fern"]


def test_a_named_successor_breaks_ties():
    host = reign("lily")
    host.settle(touch("lily"), ["rosa", "lily"])
    host.acknowledge("lily", host.succession.number)
    assert host.succession.successors == ["lily"]
    assert host.succession.electorates[-1].tie_breaker == "lily"


def test_a_host_that_ends_in_order_leaves_no_successor():
    host = reign()
    host.settle(touch("lily", "fern"), NAMES)
    host.retire()
    assert not host.settle(touch("lily", "fern"), NAMES)
    assert host.succession.successors == []


def test_whoever_does_not_know_the_newest_electorate_cannot_decide_by_an_older_one():
    """Random comings and goings: no set of machines with old knowledge, without rosa, ever decides against her."""
    chance = random.Random(7)
    names = ["rosa", "lily", "fern", "iris", "jade"]
    for _ in range(100):
        clock = Clock()
        host = reign(clock=clock)
        known = dict.fromkeys(names, host.succession)
        for _ in range(40):
            clock.now += 1.0
            here = [name for name in names[1:] if chance.random() < 0.7]
            has_lease = all(
                may_decide(Electorate(voters=tuple(one.machines), tie_breaker=one.tie_breaker), ["rosa", *here])
                for one in host.succession.electorates
            )
            host.settle(touch(*here, has_lease=has_lease), names)
            for name in here:
                if chance.random() < 0.6:
                    known[name] = host.succession
                    host.acknowledge(name, host.succession.number)
            for size in range(1, 5):
                for side in itertools.combinations(names[1:], size):
                    newest = max((known[name] for name in side), key=lambda one: one.number)
                    decides = newest.electorates and all(
                        may_decide(Electorate(voters=tuple(one.machines), tie_breaker=one.tie_breaker), side)
                        for one in newest.electorates
                    )
                    without = [name for name in names if name not in side]
                    rosa_decides = all(
                        may_decide(Electorate(voters=tuple(one.machines), tie_breaker=one.tie_breaker), without)
                        for one in host.succession.electorates
                    )
                    assert not (decides and rosa_decides), (side, newest, host.succession)
