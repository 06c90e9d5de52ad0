"""Whom a machine follows as its host: not every member that says so."""

import pytest

from potluck.gates.messages import Touch
from potluck.meeting.succession.finding import Elsewhere, HostClaims, find_host
from potluck.meeting.succession.notes import Follows, HostIs, WhoIsHost, read_note, write_note
from potluck.meeting.wire import GateMember, GateOrders, Succession, Voters

NAMES = ["rosa", "lily", "fern", "iris", "jade"]


def orders(**changes):
    succession = Succession(
        term=4, number=1, electorates=[Voters(machines=NAMES, tie_breaker="rosa")], successors=["lily", "fern"]
    )
    members = [
        GateMember(machine=name, number=number, certificate="", addresses=[], port=2000)
        for number, name in enumerate(NAMES, start=1)
    ]
    return GateOrders(
        block="127.77.1.0", host="rosa", members=members, runs={}, succession=succession.model_copy(update=changes)
    )


@pytest.mark.parametrize(
    ("sender", "note", "found"),
    [
        ("lily", HostIs(term=5), Elsewhere("lily", 5)),
        ("rosa", HostIs(term=5), Elsewhere("rosa", 5)),
        ("lily", HostIs(term=4), None),
        ("lily", HostIs(term=3), None),
        ("jade", HostIs(term=999), None),
        ("lily", Follows(term=6, host="jade"), Elsewhere("jade", 6)),
        ("iris", Follows(term=6, host="jade"), None),
    ],
)
def test_the_word_counts_of_the_host_and_of_its_successors_and_only_for_a_newer_term(sender, note, found):
    assert HostClaims().hear(sender, note, orders()) == found


def test_a_host_of_whom_this_machine_does_not_know_is_followed_once_enough_voters_do():
    claims = HostClaims()
    known = orders(successors=[])
    assert claims.hear("jade", HostIs(term=6), known) is None
    assert claims.hear("iris", Follows(term=6, host="jade"), known) is None
    assert claims.hear("fern", Follows(term=5, host="jade"), known) is None, "another term: nobody may be taken twice"
    assert claims.hear("iris", Follows(term=6, host="jade"), known) is None
    assert claims.hear("fern", Follows(term=6, host="jade"), known) == Elsewhere("jade", 6)


def test_of_a_machine_that_has_left_more_than_half_of_the_members_have_to_agree():
    claims, known = HostClaims(), orders(electorates=[], successors=[])
    for name in ("jade", "iris"):
        assert claims.hear(name, Follows(term=5, host="jade"), known) is None
    assert claims.hear("lily", Follows(term=5, host="jade"), known) == Elsewhere("jade", 5)


class Line:
    """A gate that has a note of a machine that this one does not believe; whoever is asked answers."""

    def __init__(self):
        self.notes = [("jade", write_note(HostIs(term=6)))]
        self.asked = []

    def notes_so_far(self):
        return tuple(self.notes)

    def touch(self):
        return Touch(host_heard_s=9.0, has_lease=False, newest_term=6, confirmed_by=("rosa",))

    def say(self, machine, text):
        assert isinstance(read_note(text), WhoIsHost)
        self.asked.append(machine)
        if machine in ("iris", "fern"):
            self.notes.append((machine, write_note(Follows(term=6, host="jade"))))
        return True


def test_a_machine_that_comes_back_after_the_host_has_moved_twice_asks_the_voters_that_it_knows():
    line = Line()
    assert find_host(line, orders(successors=[]), within_s=3.0) == Elsewhere("jade", 6)
    assert line.asked == NAMES
