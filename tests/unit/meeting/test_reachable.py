"""The largest set of machines that all reach each other."""

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from potluck.meeting.host.reachable import largest_set

NAMES = ("rosa", "lily", "fern", "ivy", "moss", "reed")
PAIRS = [frozenset(pair) for pair in combinations(NAMES, 2)]


@given(broken=st.sets(st.sampled_from(PAIRS)), speeds=st.dictionaries(st.sampled_from(NAMES), st.floats(1, 100)))
def test_no_two_are_a_broken_pair_and_no_set_is_larger(broken, speeds):
    chosen = largest_set(NAMES, broken, speeds)
    assert not any(pair <= chosen for pair in broken)
    for other in (set(names) for size in range(1, 7) for names in combinations(NAMES, size)):
        if not any(pair <= other for pair in broken):
            assert len(other) <= len(chosen)
            if len(other) == len(chosen):
                assert sum(speeds.get(n, 0.0) for n in other) <= sum(speeds.get(n, 0.0) for n in chosen) + 1e-9


def test_of_two_that_cannot_talk_the_first_stays_unless_the_other_is_faster():
    broken = {frozenset(("lily", "fern"))}
    assert largest_set(("rosa", "lily", "fern"), broken, {}) == {"rosa", "lily"}
    assert largest_set(("rosa", "lily", "fern"), broken, {"fern": 10.0, "lily": 3.0}) == {"rosa", "fern"}


def test_many_machines_with_broken_links_take_no_time():
    names = [f"m{number}" for number in range(60)]
    broken = {frozenset((a, b)) for a, b in pairwise(names)}
    chosen = largest_set(names, broken, {})
    assert not any(pair <= chosen for pair in broken)
    assert len(chosen) >= 20
