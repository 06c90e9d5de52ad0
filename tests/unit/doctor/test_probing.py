"""The way between two machines, on loopback: who knows the token is answered, everybody else is not."""

import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.errors import GroupError, SettingsError
from potluck.doctor.examination import OPEN, REFUSED, STRANGER, IntendedRun, MissingAnswer
from potluck.doctor.probing.asks import ClosePort, Dial, Done, Introduce, OpenPort, StationLostError
from potluck.doctor.probing.channel import Channel, RemoteStation, WrongTokenError
from potluck.doctor.probing.conducting import Seat, examine_stations, rounds
from potluck.doctor.probing.dialling import dial, try_port
from potluck.doctor.probing.listening import Target, connect, parse_target
from potluck.doctor.probing.ports import OpenedPort, digest
from potluck.doctor.probing.reaching import reach_machines
from potluck.doctor.probing.station import LocalStation

HERE = "127.0.0.1"


@contextmanager
def opened(word="a word"):
    opened = OpenedPort(HERE, 0, word)
    try:
        yield opened
    finally:
        opened.close()


def dialling(port, word="a word"):
    return Dial(source="oak", target="elm", address=HERE, port=port, word=word)


def test_an_open_port_is_measured():
    with opened() as one:
        link = dial(dialling(one.port))
    assert link.outcome == OPEN
    assert 0 < link.round_trip_s < 0.5
    assert link.bytes_per_s > 1e6
    assert abs(link.clock_offset_s) < 0.5
    assert not link.loses_large_packets


def test_who_does_not_know_the_word_gets_nothing():
    with opened() as one:
        link = dial(dialling(one.port, word="another word"))
        assert link.outcome == STRANGER
        assert link.bytes_per_s is None
        with socket.create_connection((HERE, one.port), timeout=2) as stranger:
            stranger.sendall(digest("another word", b"stream"))
            assert stranger.recv(1) == b""


def test_whoever_keeps_the_line_busy_does_not_keep_the_ports_open():
    with opened() as one:
        strangers = [socket.create_connection((HERE, one.port), timeout=2) for _ in range(40)]
        assert try_port(HERE, one.port, "a word") in (OPEN, STRANGER)  # it may have no ear left
        start = time.monotonic()
    assert time.monotonic() - start < 2
    for stranger in strangers:
        stranger.close()


def test_another_server_is_a_stranger():
    with socket.create_server((HERE, 0)) as server:

        def hang_up():
            server.accept()[0].close()

        answering = threading.Thread(target=hang_up)
        answering.start()
        assert try_port(HERE, server.getsockname()[1], "a word") == STRANGER
        answering.join()


def test_a_closed_port_is_refused():
    with opened() as one:
        port = one.port
    assert try_port(HERE, port) == REFUSED


@contextmanager
def channels(mine="a token", theirs="a token"):
    """Both ends of a conversation; the server's end is what its thread made of it."""
    first, second = socket.socketpair()
    ends = {}

    def serve():
        try:
            ends["server"] = Channel(second, theirs, is_server=True)
        except (WrongTokenError, OSError) as error:
            ends["server"] = error
            second.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield first, second, ends, thread, mine
    finally:
        first.close()
        thread.join()
        second.close()


def test_a_channel_carries_lines_both_ways():
    with channels() as (first, _, ends, thread, token):
        client = Channel(first, token, is_server=False)
        thread.join()
        client.say(b'{"a": 1}')
        assert ends["server"].hear() == b'{"a": 1}'
        ends["server"].say(b"{}")
        assert client.hear() == b"{}"
        client.close()
        ends["server"].close()


def test_a_channel_refuses_another_token():
    with channels(theirs="another") as (first, _, ends, thread, token):
        with pytest.raises((WrongTokenError, OSError)):
            Channel(first, token, is_server=False)
        thread.join()
        assert isinstance(ends["server"], WrongTokenError | OSError)


def test_a_line_that_was_changed_or_repeated_is_refused():
    with channels() as (first, second, ends, thread, token):
        client = Channel(first, token, is_server=False)
        thread.join()
        second.sendall(b"0" * 64 + b" {}\n")
        with pytest.raises(WrongTokenError):
            client.hear()
        client.close()
        ends["server"].close()


def test_a_station_that_hangs_up_is_lost():
    with channels() as (first, _, ends, thread, token):
        station = RemoteStation(Channel(first, token, is_server=False))
        thread.join()
        ends["server"].close()
        with pytest.raises(StationLostError):
            station.ask(Introduce())
        station.close()


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("abc@10.0.0.1:30000", Target("10.0.0.1", 30000, "abc")),
        ("abc@10.0.0.1", Target("10.0.0.1", 29500, "abc")),
        ("lily", Target("lily", 29500, "")),
    ],
)
def test_targets(text, target):
    assert parse_target(text) == target


def test_nonsense_is_no_target():
    with pytest.raises(SettingsError):
        parse_target("abc@")
    with pytest.raises(SettingsError):
        parse_target("10.0.0.1:port")


def test_a_wrong_token_says_what_to_copy():
    with socket.create_server((HERE, 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection, pytest.raises((WrongTokenError, OSError)):
                Channel(connection, "right", is_server=True)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises((GroupError, OSError)):
                connect(Target(HERE, server.getsockname()[1], "wrong"))
        finally:
            thread.join()


def test_a_machine_where_nobody_listens_is_told_apart_from_a_name_nobody_knows():
    with socket.create_server((HERE, 0)) as server:
        port = server.getsockname()[1]
    seen = reach_machines([f"{HERE}:{port}", "nobody.invalid"], IntendedRun(), with_torch=False)
    assert "potluck doctor --listen" in seen.absent[HERE].fix
    assert "name is not known" in seen.absent["nobody.invalid"].why


@given(st.integers(min_value=0, max_value=25))
def test_every_ordered_pair_meets_once_and_nobody_is_in_two_pairs_of_a_round(number):
    plan = rounds(range(number))
    met = [pair for pairs in plan for pair in pairs]
    assert sorted(met) == [(a, b) for a in range(number) for b in range(number) if a != b]
    for pairs in plan:
        busy = [one for pair in pairs for one in pair]
        assert len(busy) == len(set(busy))
    assert len(plan) <= 2 * number


class Gone:
    """A machine that was just switched off."""

    def ask(self, question):
        raise StationLostError("it has gone")


def test_a_machine_that_vanishes_is_absent_and_the_others_are_examined():
    station = LocalStation()
    try:
        seen = examine_stations([Seat(station, HERE), Seat(Gone(), "10.9.9.9")], with_torch=False)
    finally:
        station.close()
    assert seen.absent == {"10.9.9.9": MissingAnswer(why="it has gone")}
    assert len(seen.machines) == 1


def test_a_station_closes_its_port_when_told_to():
    station = LocalStation()
    port = station.ask(OpenPort(address=HERE, port=0, word="a word")).port
    assert try_port(HERE, port) == OPEN
    assert station.ask(ClosePort()) == Done()
    assert try_port(HERE, port) == REFUSED


def test_a_port_that_is_taken_is_not_dialled():
    with opened() as one:
        station = LocalStation()
        assert station.ask(OpenPort(address=HERE, port=one.port, word="a word")).port == 0


def test_a_machine_that_is_reached_by_its_name_is_examined_by_its_address():
    command = [sys.executable, "-c", "from potluck.cli import main; main()", "doctor", "--listen", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as listener:
        try:
            line = listener.stdout.readline()
            token, port = re.search(r"--reach (\w+)@[^:]*:(\d+)", line).groups()
            seen = reach_machines([f"{token}@localhost:{port}"], IntendedRun(), with_torch=False)
        finally:
            listener.terminate()
    assert HERE in seen.addresses.values()
    assert not seen.absent
