"""Who may dial which port of whom: only machines of the run, and only ports that its workers have told."""

from hypothesis import given
from hypothesis import strategies as st

from potluck.gates.messages import ClusterMachine, Ports, Settings
from potluck.gates.ports import ExposedPorts, StandIn, in_run, wanted_stand_ins

NAMES = ("rosa", "lily", "fern", "iris")


def settings(machine, runs, members=NAMES):
    known = tuple(
        ClusterMachine(machine=name, number=number, certificate="", addresses=(), port=29500)
        for number, name in enumerate(NAMES, start=1)
        if name in members
    )
    return Settings(machine=machine, host="rosa", block="127.77.16.0", members=known, runs=runs)


def test_a_machine_stands_in_for_others_of_its_own_runs_only():
    runs = {"a": ("lily", "fern"), "b": ("fern", "iris")}
    told = {
        "rosa": Ports(version=1, runs={"a": {29510: "control"}, "b": {29511: "control"}}),
        "fern": Ports(version=1, runs={"a": {40000: "bulk"}, "b": {40001: "bulk"}, "c": {40002: "bulk"}}),
        "iris": Ports(version=1, runs={"a": {50000: "bulk"}}),
    }
    wanted = wanted_stand_ins(settings("lily", runs), told, here=())
    # The host's lighthouse, and fern's worker in the run that both share; iris has no part in it, whatever it says.
    assert wanted == {StandIn("rosa", "a", 29510, "127.77.16.1"), StandIn("fern", "a", 40000, "127.77.16.3")}
    assert wanted_stand_ins(settings("lily", runs), told, here=("fern",)) == {
        StandIn("rosa", "a", 29510, "127.77.16.1")
    }
    left = settings("lily", runs, members=("rosa", "lily"))
    assert wanted_stand_ins(left, told, here=()) == {StandIn("rosa", "a", 29510, "127.77.16.1")}


def test_a_host_that_does_not_train_stands_in_for_nobody():
    told = {"lily": Ports(version=1, runs={"a": {40000: "bulk"}})}
    assert wanted_stand_ins(settings("rosa", {"a": ("lily", "fern")}), told, here=()) == set()


@given(st.dictionaries(st.sampled_from("abc"), st.sets(st.sampled_from(NAMES[1:])).map(tuple)), st.sampled_from(NAMES))
def test_nobody_hears_of_ports_of_a_run_that_it_has_no_part_in(runs, machine):
    exposed = ExposedPorts()
    for number, run in enumerate("abcd"):
        exposed.add(number, run, {40000 + number: "bulk"})
    told = exposed.for_machine(machine, settings("lily", runs), asks=False)
    for run in told.runs:
        assert machine == "rosa" or machine in runs[run]
    assert all(in_run(settings("lily", runs), run, machine) for run in told.runs)


def test_ports_go_with_the_conversation_that_told_them_and_versions_only_grow():
    exposed = ExposedPorts()
    before = exposed.version
    exposed.add(1, "a", {1000: "bulk"})
    exposed.add(1, "b", {1001: "control"})
    exposed.add(2, "a", {1002: "bulk"})
    assert exposed.of("a") == {1000: "bulk", 1002: "bulk"}
    assert exposed.drop(1) == {"a", "b"}
    assert exposed.of("a") == {1002: "bulk"}
    assert exposed.of("b") == {}
    assert exposed.version > before
    assert exposed.drop(7) == set()
