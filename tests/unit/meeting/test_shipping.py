"""Whatever happens to deliveries, the host's files end as the machine's: byte for byte."""

import contextlib
import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.core.errors import ShippingError
from potluck.events.log import EventLog, read_records
from potluck.events.types import Notice
from potluck.meeting.transfer.shipping import MAX_DELIVERY_BYTES, Shipper, receive

EVENTS, LOG = "events/rosa-0.jsonl", "logs/rosa-0.err.log"
FATES = ["arrives", "lost", "answer lost", "late", "twice"]


@pytest.fixture
def here(tmp_path):
    return folder(tmp_path / "here")


@pytest.fixture
def host(tmp_path):
    return folder(tmp_path / "host")


def folder(path):
    path.mkdir()
    return path


def append(run_folder, name, data):
    file = run_folder / name
    file.parent.mkdir(exist_ok=True)
    with file.open("ab") as out:
        out.write(data)


def direct(host):
    return lambda name, offset, data: receive(host, name, offset, data, machine="rosa")


def drain(shipper):
    for _ in range(10_000):
        if not shipper.ship():
            return
    raise AssertionError("never done")


def content(run_folder):
    return {str(file.relative_to(run_folder)): file.read_bytes() for file in run_folder.rglob("*") if not file.is_dir()}


class Network:
    """Deliveries meet the fates they are told; what is late arrives when the test says so."""

    def __init__(self, host):
        self._host = host
        self._late = []
        self.fates = []

    def send(self, name, offset, data):
        fate = self.fates.pop(0) if self.fates else "arrives"
        if fate in ("lost", "late"):
            self._late += [(name, offset, data)] * (fate == "late")
            raise ConnectionError
        for _ in range(2 if fate == "twice" else 1):
            size = receive(self._host, name, offset, data)
        if fate == "answer lost":
            raise ConnectionError
        return size

    def deliver_late(self, which):
        if self._late:
            receive(self._host, *self._late.pop(which % len(self._late)))


TURNS = st.one_of(
    st.tuples(st.just("events"), st.binary(max_size=30)),
    st.tuples(st.just("log"), st.binary(max_size=60)),
    st.tuples(st.just("ship"), st.lists(st.sampled_from(FATES), max_size=4)),
    st.tuples(st.just("late one comes"), st.integers(0, 50)),
    st.tuples(st.just("this machine restarts"), st.none()),
    st.tuples(st.just("the host forgets its last bytes"), st.integers(0, 40)),
)


@settings(max_examples=120)
@given(turns=st.lists(TURNS, max_size=40), batch_bytes=st.integers(1, 50))
def test_any_fate_of_deliveries_ends_with_the_same_bytes(tmp_path_factory, turns, batch_bytes):
    top = tmp_path_factory.mktemp("shipping")
    here, host = folder(top / "here"), folder(top / "host")
    network = Network(host)
    shipper = Shipper(here, network.send, batch_bytes=batch_bytes)
    for kind, what in turns:
        if kind == "events":
            append(here, EVENTS, what.replace(b"\n", b" ") + b"\n")
        elif kind == "log":
            append(here, LOG, what)
        elif kind == "ship":
            network.fates = list(what)
            with contextlib.suppress(ConnectionError):
                shipper.ship()
        elif kind == "late one comes":
            network.deliver_late(what)
        elif kind == "this machine restarts":
            shipper = Shipper(here, network.send, batch_bytes=batch_bytes)
        elif (host / LOG).is_file():  # a power cut on the host
            os.truncate(host / LOG, max(0, (host / LOG).stat().st_size - what))
            shipper.ask_again()
    network.fates = []
    drain(shipper)
    for which in range(50):
        network.deliver_late(which)
    assert content(host) == content(here)
    assert not shipper.refused


def test_the_half_written_line_of_a_killed_worker_stays_until_it_is_whole(here, host):
    log = EventLog(here / EVENTS)
    log.append(Notice(text="one"))
    log.close()
    whole = (here / EVENTS).read_bytes()
    append(here, EVENTS, b'{"sequence":1,"ti')
    shipper = Shipper(here, direct(host))
    drain(shipper)
    assert (host / EVENTS).read_bytes() == whole
    log = EventLog(here / EVENTS)  # the run goes on, and cuts the half line off
    log.append(Notice(text="two"))
    log.close()
    drain(shipper)
    assert content(host) == content(here)
    assert [record.event.text for record in read_records(host / EVENTS)] == ["one", "two"]
    assert not shipper.refused


def test_a_file_that_is_being_written_arrives_whole(here, host):
    log = EventLog(here / EVENTS)
    shipper = Shipper(here, direct(host), batch_bytes=1000)

    def write_many():
        for number in range(2000):
            log.append(Notice(text=str(number)))
        log.close()

    writer = threading.Thread(target=write_many)
    writer.start()
    while writer.is_alive():
        shipper.ship()
    writer.join()
    drain(shipper)
    assert content(host) == content(here)
    assert [record.sequence for record in read_records(host / EVENTS)] == list(range(2000))


def test_a_line_longer_than_a_batch_arrives(here, host):
    append(here, EVENTS, b"a" * 200_000 + b"\n" + b"b" * 200_000)
    sizes = []

    def send(name, offset, data):
        sizes.append(len(data))
        return receive(host, name, offset, data)

    drain(Shipper(here, send, batch_bytes=1000))
    assert (host / EVENTS).read_bytes() == b"a" * 200_000 + b"\n"
    assert max(sizes) == 1000
    assert sum(sizes) == 200_001


def test_what_has_arrived_is_not_sent_again_after_a_restart(here, host):
    append(here, LOG, os.urandom(1_000_000))
    drain(Shipper(here, direct(host)))
    sent = []

    def send(name, offset, data):
        sent.append(len(data))
        return receive(host, name, offset, data)

    shipper = Shipper(here, send)
    drain(shipper)
    assert sum(sent) <= 4096
    calls = len(sent)
    drain(shipper)
    assert len(sent) == calls, "nothing new, so nothing to say"


def test_one_big_file_does_not_keep_the_others_waiting(here, host):
    append(here, EVENTS, b"x" * 99 + b"\n")
    append(here, LOG, b"y" * 100_000)
    shipper = Shipper(here, direct(host), batch_bytes=1000)
    assert shipper.ship() == 99_000
    assert (host / EVENTS).read_bytes() == (here / EVENTS).read_bytes()


@pytest.mark.parametrize("change", ["another beginning", "shorter", "shorter, then longer"])
def test_another_file_of_that_name_is_refused_and_the_others_go_on(here, host, change):
    append(here, LOG, b"first\n" * 2000)
    drain(Shipper(here, direct(host)))
    (here / LOG).write_bytes(
        {"another beginning": b"other\n" * 2000, "shorter": b"first\n" * 3}.get(change, b"x" * 20000)
    )
    append(here, EVENTS, b"{}\n")
    shipper = Shipper(here, direct(host))
    drain(shipper)
    assert list(shipper.refused) == [LOG]
    assert "not what the host has" in str(shipper.refused[LOG])
    assert (host / LOG).read_bytes() == b"first\n" * 2000
    assert (host / EVENTS).read_bytes() == b"{}\n"


def test_the_same_deliveries_at_the_same_time_write_the_same_bytes(host):
    data = os.urandom(50_000)
    parts = [(offset, data[offset : offset + 1000]) for offset in range(0, len(data), 500)]
    with ThreadPoolExecutor(8) as pool:
        while receive(host, LOG, 0, b"") < len(data):
            list(pool.map(lambda part: receive(host, LOG, *part), parts * 3))
    assert (host / LOG).read_bytes() == data


@pytest.mark.parametrize(
    "name",
    [
        "../x.log", "logs/../../x.log", "/etc/x.log", "logs//x.log", "logs/a/b.log", "logs/.x.log", "logs/x.log\n",
        "events/x.log", "logs/x.jsonl", "run.yaml", "checkpoints/x.pth", "", "logs/", "logs/x\0.log", "logs/x.log/",
        "logs/rank_0_metrics.json", "logs/" + "x" * 300 + ".log", "events\\x.jsonl",
        "traces/x.json", "traces/.x.json.gz", "traces/x.pkl", "traces/../x.json.gz",
    ],
)  # fmt: skip
def test_unsafe_names_are_refused(host, name):
    with pytest.raises(ShippingError, match="is not one of"):
        receive(host, name, 0, b"x")
    assert content(host) == {}


@pytest.mark.parametrize(
    "name",
    ["events/anna-0.jsonl", "events/rosa-1-0.jsonl", "logs/rosa.log", "events/rosa-x.jsonl", "traces/anna-0.json.gz"],
)
def test_a_machine_writes_its_own_files_only(host, name):
    with pytest.raises(ShippingError, match="one of rosa's"):
        receive(host, name, 0, b"x", machine="rosa")


def test_links_are_not_followed_on_either_side(here, host, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("private")
    append(here, EVENTS, b"{}\n")
    (here / "logs").mkdir()
    (here / LOG).symlink_to(outside)
    shipper = Shipper(here, direct(host))
    drain(shipper)
    assert "is a link" in str(shipper.refused[LOG])
    (host / LOG).unlink(missing_ok=True)
    (host / "logs").mkdir(exist_ok=True)
    (host / LOG).symlink_to(outside)
    with pytest.raises(ShippingError, match="is a link"):
        receive(host, LOG, 0, b"x")
    (host / LOG).unlink()
    (host / "logs").rmdir()
    (host / "logs").symlink_to(folder(tmp_path / "elsewhere"))
    with pytest.raises(ShippingError, match="is a link"):
        receive(host, LOG, 0, b"x")
    assert outside.read_text() == "private"
    assert content(tmp_path / "elsewhere") == {}


def test_a_pipe_or_folder_in_the_place_of_a_file_is_refused_at_once(host):
    (host / "logs").mkdir()
    os.mkfifo(host / LOG)
    (host / "logs" / "rosa-1.log").mkdir()
    for name in (LOG, "logs/rosa-1.log"):
        with pytest.raises(ShippingError, match="not a plain file"):
            receive(host, name, 0, b"x")


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (0, MAX_DELIVERY_BYTES + 1)])
def test_nonsense_deliveries_are_refused(host, offset, size):
    with pytest.raises(ShippingError, match="same version"):
        receive(host, LOG, offset, b"x" * size)


def test_a_full_disk_on_the_host_loses_nothing(here, host, monkeypatch):
    append(here, LOG, b"0123456789")
    shipper = Shipper(here, direct(host))
    room = iter([4, 0])

    def nearly_full(file, data, offset, pwrite=os.pwrite):
        if not (left := next(room)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(file, bytes(data)[:left], offset)

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", nearly_full)
        with pytest.raises(OSError, match="No space"):
            shipper.ship()
    assert Path(host / LOG).read_bytes() == b"0123"
    drain(shipper)
    assert content(host) == content(here)


def test_a_trace_goes_home_whole_though_it_has_no_lines(here, host):
    name = "traces/rosa-0.steps-5-8.json.gz"
    append(here, name, bytes(range(11, 256)) * 40)
    drain(Shipper(here, direct(host), batch_bytes=1000))
    assert (host / name).read_bytes() == (here / name).read_bytes()
    assert receive(host, name, 0, b"", machine="rosa") == 245 * 40
