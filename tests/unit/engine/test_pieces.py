"""Pieces of a round: what is missing is split, taken and cut without losing or doubling a position."""

from hypothesis import given
from hypothesis import strategies as st

from potluck.engine.group.open_round import OpenRound
from potluck.engine.group.protocol import Total
from potluck.engine.order.pieces import cut, joined, kept_of, missing, num_samples, overlap, take

TOTAL = 60
PIECES = st.lists(st.tuples(st.integers(0, TOTAL), st.integers(0, TOTAL)).map(sorted).map(tuple), max_size=4)


def positions(pieces):
    return [position for start, stop in pieces for position in range(start, stop)]


@given(PIECES)
def test_what_is_missing_and_what_is_done_are_everything(done):
    left = missing(TOTAL, done)
    assert sorted({*positions(left), *positions(done)}) == list(range(TOTAL))
    assert not overlap(left, done)


@given(PIECES, st.integers(0, TOTAL))
def test_two_takers_share_what_is_missing(done, border):
    left = missing(TOTAL, done)
    size = num_samples(left)
    border = min(border, size)
    assert positions(take(left, 0, border)) + positions(take(left, border, size)) == positions(left)


@given(st.integers(0, TOTAL), st.integers(1, 9))
def test_a_cut_piece_is_whole(stop, num_parts):
    parts = list(cut((0, stop), num_parts))
    assert positions(parts) == list(range(stop))
    sizes = [last - first for first, last in parts]
    assert max(sizes) - min(sizes) <= 1


@given(PIECES)
def test_of_workers_that_have_trained_the_same_only_the_first_counts(claims):
    kept = kept_of([[piece] for piece in claims])
    everything = positions(piece for pieces in kept for piece in pieces)
    assert len(everything) == len(set(everything))


def test_joined_pieces_are_as_few_as_possible():
    assert joined([(4, 6), (0, 2), (2, 4), (8, 9)]) == [(0, 6), (8, 9)]


def round_of(**more):
    return OpenRound(start=12, num_steps=4, began_at=0.0, usual_batch=3, **more)


def test_a_round_has_a_local_step_for_each_of_its_steps():
    opened = round_of()
    opened.assign((10, 21), None, [])
    trained = []
    while not opened.is_trained:
        part = opened.next_slice()
        assert part.step == 12
        trained.append(part.num_samples)
        opened.end_step(Total(float(part.num_samples), 1.0, 1.0))
    assert trained == [2, 3, 3, 3]
    assert (opened.done, opened.weight, opened.loss_sum) == ([(10, 21)], 11.0, 4.0)
    opened.assign_rest([(0, 4), (30, 31)])
    assert opened.is_again
    rest = [opened.next_slice(), *opened.upcoming()]
    assert [(part.start, part.stop) for part in rest] == [(0, 2), (2, 4), (30, 31)]


def test_a_worker_without_samples_makes_one_step_that_counts_nothing():
    opened = round_of()
    opened.assign((0, 0), None, [])
    assert opened.next_slice().num_samples == 0
    opened.end_step(Total(0.0, 0.0, 1.0))
    assert opened.is_trained
    assert opened.contribution(False, 0, counts=True).num_samples == 0
