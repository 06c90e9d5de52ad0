"""A benched worker beside one that trains: it has the newest state, and notices when it is the only one left."""

import threading
import time
from datetime import timedelta

import pytest
import torch

from potluck.core.errors import GroupError
from potluck.engine.group.bench import Bench
from potluck.engine.group.state_transfer import NEWEST, BusyError, StateExchange

SECRET = b"secret"
LAST_STEP = 100


def state_of(step):
    return {"step": step, "model": {"weight": torch.full((4,), float(step))}}


@pytest.fixture
def trainer():
    exchange = StateExchange("127.0.0.1", SECRET)
    yield exchange
    exchange.shutdown()


@pytest.fixture
def follow(trainer):
    mine = StateExchange("127.0.0.1", SECRET)

    def fetch(peer, step):
        return mine.fetch(peer, step, timedelta(seconds=5))

    yield lambda **options: Bench([trainer.metadata()], fetch, 8, stop_following=mine.stop_following, **options)
    mine.shutdown()


def test_the_state_is_given_in_the_next_step_if_it_is_asked_for_between_two(trainer, follow):
    bench = follow()
    opening = threading.Timer(0.3, trainer.open, [7, lambda: state_of(7)])
    opening.start()
    assert bench.copy()
    opening.join()
    assert bench.newest["step"] == 7
    assert torch.equal(bench.newest["model"]["weight"], torch.full((4,), 7.0))


def test_who_gives_no_state_away_is_not_gone(trainer, follow):
    bench = follow()
    mine = StateExchange("127.0.0.1", SECRET)
    with pytest.raises(BusyError):
        mine.fetch(trainer.metadata(), NEWEST, timedelta(seconds=5))
    mine.shutdown()
    assert not bench.copy()
    assert not bench.is_deserted


def test_the_heir_copies_by_itself_and_goes_on_with_the_newest_copy(trainer, follow):
    bench = follow(is_heir=True)
    trainer.open(11, lambda: state_of(11))
    until = time.monotonic() + 1.0
    bench.wait(lambda: time.monotonic() > until)
    assert bench.newest["step"] == 11
    trainer.shutdown()
    bench.wait(bool)
    assert bench.is_deserted
    assert bench.is_left_to_me(LAST_STEP)
    assert bench.newest["step"] == 11


def test_who_stops_hands_its_last_state_over(trainer, follow):
    bench = follow()
    trainer.open(11, lambda: state_of(11))
    assert bench.copy()  # by now it also waits for the end
    wait_for(lambda: trainer._followers)
    trainer.hand_over(12, lambda: state_of(12))
    bench.wait(bool)
    assert bench.newest["step"] == 12
    assert bench.is_left_to_me(LAST_STEP)
    assert not bench.is_over(LAST_STEP)


def test_the_end_of_training_is_nothing_to_go_on_from(trainer, follow):
    bench = follow()
    wait_for(lambda: trainer._followers)
    trainer.finish(LAST_STEP, lambda: state_of(LAST_STEP))
    bench.wait(bool)
    assert bench.is_over(LAST_STEP)
    assert not bench.is_left_to_me(LAST_STEP)


def test_the_wait_for_the_end_may_take_longer_than_a_transfer(trainer):
    mine = StateExchange("127.0.0.1", SECRET)
    bench = Bench([trainer.metadata()], lambda peer, step: mine.fetch(peer, step, timedelta(seconds=0.5)), 8)
    wait_for(lambda: trainer._followers)
    time.sleep(0.6)
    trainer.finish(LAST_STEP, lambda: state_of(LAST_STEP))
    bench.wait(bool)
    assert bench.is_over(LAST_STEP)
    mine.shutdown()


def test_who_is_back_no_longer_waits_for_the_end(trainer, follow):
    bench = follow()
    wait_for(lambda: trainer._followers)
    bench.close()
    assert not any(thread.name == "potluck-bench" for thread in threading.enumerate())
    began = time.monotonic()
    trainer.finish(LAST_STEP, lambda: state_of(LAST_STEP))
    assert time.monotonic() - began < 1.0


def test_the_pace_of_the_others_is_that_of_their_fastest_stretch():
    bench = Bench([], lambda *_: {}, 8)
    assert bench.step_s is None
    for at, step in ((0.0, 0), (0.5, 1), (10.0, 100), (20.0, 150), (30.0, 250)):  # they evaluated in the second stretch
        bench._note(at, step)
    assert bench.step_s == pytest.approx(0.1)


def test_somebody_with_another_secret_is_nobody(trainer):
    stranger = StateExchange("127.0.0.1", b"another")
    bench = Bench([trainer.metadata()], lambda peer, step: stranger.fetch(peer, step, timedelta(seconds=1)), 8)
    trainer.open(3, lambda: state_of(3))
    assert not bench.copy()
    assert bench.newest is None
    with pytest.raises(GroupError):
        stranger.fetch(trainer.metadata(), NEWEST, timedelta(seconds=1))
    stranger.shutdown()


def wait_for(condition):
    deadline = time.monotonic() + 5.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
