"""The account of a plain run from outside: who was busy, who waited, what ended it."""

from potluck.events.state import RunState
from potluck.events.types import GpuUse, WorkersUsed
from potluck.report.plain_account import PlainAccount


def machine(name, busy_cores, *, worker=0, cores=4, gpus=(), sent=0, others=0.0, files=(), seconds=100.0, **more):
    used = WorkersUsed(
        seconds=seconds,
        cores=cores,
        workers_cpu_s=100 * busy_cores,
        machine_cpu_s=None if others is None else 100 * (busy_cores + others),
        sent_bytes=sent,
        received_bytes=0,
        gpus=list(gpus),
        folder="/home/ann/.potluck/scripts/one",
        files=list(files),
    )
    return RunState(machine=name, worker=worker, device="cpu", used=used, **more)


def test_the_others_wait_for_the_busiest():
    account = PlainAccount.of([machine("lily", 1.0, worker=1), machine("rosa", 3.9)])
    assert [one.machine for one in account.machines] == ["rosa", "lily"]  # by rank
    assert (
        account.verdict() == "every machine computes an equal share, and lily (75 % idle) waits for rosa, the slowest"
    )


def test_of_a_short_run_there_is_too_little_to_say():
    account = PlainAccount.of(
        [machine("lily", 1.0, worker=1, seconds=2.0), machine("rosa", 1.0, others=3, seconds=2.0)]
    )
    assert account.verdict() == account.other_programs() == ""


def test_a_gpu_counts_instead_of_the_cores():
    gpus = [GpuUse(name="card", busy=0.9), GpuUse(name="card", busy=0.7)]
    account = PlainAccount.of([machine("rosa", 0.5, gpus=gpus), machine("lily", 1.0, worker=1)])
    assert account.machines[0].busy_text == "GPU 80 %, 0.5 of 4 cores"
    assert "lily (75 % idle) waits for rosa" in account.verdict()


def test_machines_that_are_equally_busy_or_all_idle_get_other_words():
    assert "about equally busy" in PlainAccount.of([machine("rosa", 3.5), machine("lily", 3.4, worker=1)]).verdict()
    idle = PlainAccount.of([machine("rosa", 1.0, sent=10**9), machine("lily", 0.5, worker=1)])
    assert "busy for more than 25 % of the time" in idle.verdict()
    assert "sent 10.0 MB/s" in idle.verdict()
    assert "little went over the network" in PlainAccount.of([machine("rosa", 1), machine("lily", 1)]).verdict()
    assert PlainAccount.of([machine("rosa", 1.0)]).verdict() == ""
    assert PlainAccount.of([RunState()]).verdict() == ""


def test_other_programs_and_written_files_are_named():
    account = PlainAccount.of([machine("rosa", 1.0, others=2.0, files=["snapshot.pt"])])
    assert account.other_programs() == "other programs kept busy: 2.0 of 4 cores on rosa"
    assert account.written() == ["rosa has what the script wrote: snapshot.pt in /home/ann/.potluck/scripts/one"]
    assert PlainAccount.of([machine("rosa", 1.0, others=0.1)]).other_programs() == ""
    assert PlainAccount.of([machine("rosa", 1.0, others=None)]).other_programs() == ""  # a container's quota hides it


def test_the_run_has_failed_if_one_worker_has_and_its_cause_is_no_lost_connection():
    closed = machine("rosa", 1.0, ended="failed", message="RuntimeError: [pair.cc:553] Connection closed by peer")
    crashed = machine("lily", 1.0, worker=1, ended="failed", message="ValueError: no data")
    assert PlainAccount.of([closed, crashed]).cause == "lily: ValueError: no data"
    assert PlainAccount.of([machine("rosa", 1.0, ended="stopped"), crashed]).ended == "failed"
    assert PlainAccount.of([machine("rosa", 1.0, ended="finished"), machine("lily", 1.0, worker=1)]).ended == ""
    assert PlainAccount.of([machine("rosa", 1.0, ended="finished")]).ended == "finished"


def test_a_machine_without_an_end_counts_before_those_that_were_stopped_because_of_it():
    account = PlainAccount.of([machine("rosa", 1.0, ended="stopped"), machine("lily", 1.0, worker=1)])
    assert account.ended == ""
    assert account.lost == "lily was lost"
    assert PlainAccount.of([machine("rosa", 1.0), machine("lily", 1.0, worker=1)]).lost == ""
