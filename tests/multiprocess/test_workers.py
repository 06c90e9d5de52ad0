"""Workers as real processes under torch's supervision: logs, restarts, the first traceback, a gentle end."""

import os
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from potluck.core.errors import RunFolderError
from potluck.events.log import read_records
from potluck.events.types import RunEnded, StepCommitted
from potluck.meeting.shipping import check_file_name
from potluck.meeting.workers import RestartRules, WorkerOrder, WorkerProcesses, judge
from tests.multiprocess import forked
from tests.multiprocess.command import SMALL

AT_ONCE = RestartRules(most=2, first_delay_s=0.01, longest_delay_s=0.05)
ONCE = RestartRules(most=0)
READY = "open('ready', 'w').close(); "
STOPS_AFTER_STEP = (
    "import signal, sys, time; asked = []\n"
    "signal.signal(signal.SIGINT, lambda *_: asked.append(1))\n"
    f"{READY}\n"
    "while not asked: time.sleep(0.01)\n"
    "print('saved'); sys.exit(130)"
)
DEAF = (
    "import signal, subprocess, sys, time\n"
    "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'])\n"
    f"open('child', 'w').write(str(child.pid)); {READY}\n"
    "time.sleep(100)"
)


def order(number, code, **variables):
    return WorkerOrder(number=number, command=(sys.executable, "-c", code), variables=variables)


@contextmanager
def workers(folder, *orders, restarts=ONCE):
    with WorkerProcesses("rosa", folder / "run", orders, folder=folder, restarts=restarts) as processes:
        yield processes


def until(condition, timeout_s=30):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def until_over(processes):
    crashes = []

    def over():
        crashes.extend(processes.poll())
        return processes.is_over

    until(over)
    return crashes


def states(processes):
    return [status.state for status in processes.statuses()]


def log(folder, name):
    return (folder / "run" / "logs" / name).read_text()


def test_each_worker_has_its_own_variables_folder_and_logs(tmp_path):
    code = "import os, sys; print(os.getcwd(), os.environ['A']); sys.stderr.write(repr(sys.stdin.read()))"
    with workers(tmp_path, order(0, code, A="x"), order(1, code, A="y")) as processes:
        assert until_over(processes) == []
        assert states(processes) == ["finished", "finished"]
    assert log(tmp_path, "rosa-0.start-1.out.log") == f"{tmp_path} x\n"
    assert log(tmp_path, "rosa-1.start-1.out.log") == f"{tmp_path} y\n"
    assert log(tmp_path, "rosa-1.start-1.err.log") == "''"
    for file in (tmp_path / "run" / "logs").glob("*.log"):
        check_file_name(f"logs/{file.name}", "rosa")


def test_a_secret_is_in_no_argument_and_no_text(tmp_path):
    secret = order(0, f"{READY} import time; time.sleep(100)", POTLUCK_SECRET="hush")
    assert "hush" not in repr(secret)
    with workers(tmp_path, secret) as processes:
        until((tmp_path / "ready").exists)
        process = psutil.Process(processes.statuses()[0].process_id)
        assert process.environ()["POTLUCK_SECRET"] == "hush"
        assert "hush" not in " ".join(process.cmdline())


def test_a_crash_is_told_once_with_its_traceback_and_the_machine(tmp_path):
    with workers(tmp_path, order(0, "raise ValueError('no')"), order(1, "")) as processes:
        (crash,) = until_over(processes)
        assert states(processes) == ["failed", "finished"]
        assert processes.poll() == []
    assert processes.first_crash == crash
    assert (crash.machine, crash.worker, crash.exit_code, crash.restarts_left) == ("rosa", "rosa-0", 1, 0)
    assert crash.reason == "ValueError: no"
    assert "Traceback" in crash.traceback
    assert abs(crash.time - time.time()) < 30


def test_one_crash_leaves_the_other_workers_alone(tmp_path):
    with workers(tmp_path, order(0, "raise ValueError"), order(1, STOPS_AFTER_STEP)) as processes:
        until(processes.poll)
        until((tmp_path / "ready").exists)
        assert states(processes) == ["failed", "running"]


def test_the_first_crash_is_the_earliest_not_the_first_in_the_list(tmp_path):
    late = (
        "import time, os\nwhile not os.path.exists('first'): time.sleep(0.01)\ntime.sleep(0.2); raise ConnectionError"
    )
    early = "open('first', 'w').close(); raise ValueError('the cause')"
    with workers(tmp_path, order(0, late), order(1, early)) as processes:
        until(lambda: all(len(file.read_text()) > 50 for file in errors(tmp_path)) and len(errors(tmp_path)) == 2)
        time.sleep(0.2)
        crashes = until_over(processes)
    assert [crash.worker for crash in crashes] == ["rosa-1", "rosa-0"]
    assert processes.first_crash.reason == "ValueError: the cause"


def errors(folder):
    return list((folder / "run" / "logs").glob("*.err.log"))


def test_restarts_are_limited_and_every_start_has_its_own_logs(tmp_path):
    with workers(tmp_path, order(0, "raise ValueError('again')"), restarts=AT_ONCE) as processes:
        crashes = until_over(processes)
        assert states(processes) == ["failed"]
    assert [crash.restarts_left for crash in crashes] == [2, 1, 0]
    assert sorted(file.name for file in errors(tmp_path)) == [f"rosa-0.start-{n}.err.log" for n in (1, 2, 3)]
    assert all("again" in file.read_text() for file in errors(tmp_path))


def test_a_restarted_worker_may_finish(tmp_path):
    code = (
        "import os, signal\nif not os.path.exists('once'):\n    open('once', 'w'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    with workers(tmp_path, order(0, code), restarts=AT_ONCE) as processes:
        (crash,) = until_over(processes)
        assert states(processes) == ["finished"]
        assert processes.statuses()[0].num_starts == 2
    assert crash.exit_code == -signal.SIGKILL
    assert "SIGKILL" in crash.reason


def test_a_worker_that_cannot_even_begin_says_why(tmp_path):
    missing = WorkerOrder(number=0, command=("surely-not-there",), variables={})
    with workers(tmp_path, missing) as processes:
        (crash,) = until_over(processes)
    assert crash.reason.startswith("FileNotFoundError")


def test_what_torch_records_of_an_exception_is_used_and_half_of_it_does_no_harm(tmp_path):
    record = (
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main():\n    raise ValueError('recorded')\n"
        "import os; os.close(2); main()"
    )
    half = "import os; open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('{'); raise ValueError('half')"
    with workers(tmp_path, order(0, record), order(1, half)) as processes:
        crashes = {crash.worker: crash for crash in until_over(processes)}
    assert crashes["rosa-0"].reason == "ValueError: recorded"
    assert crashes["rosa-1"].reason == "ValueError: half"


def test_a_gentle_stop_waits_for_the_step(tmp_path):
    with workers(tmp_path, order(0, STOPS_AFTER_STEP), restarts=AT_ONCE) as processes:
        until((tmp_path / "ready").exists)
        assert processes.stop(after_step=True) == []
        assert states(processes) == ["stopped"]
    assert log(tmp_path, "rosa-0.start-1.out.log") == "saved\n"


def test_a_stop_works_where_this_process_ignores_ctrl_c(tmp_path):
    """As a shell starts what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with workers(tmp_path, order(0, f"{READY} import time; time.sleep(100)")) as processes:
            until((tmp_path / "ready").exists)
            began = time.monotonic()
            assert processes.stop(after_step=True) == []
            assert time.monotonic() - began < 10
            assert states(processes) == ["stopped"]
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_deaf_worker_and_its_children_end_all_the_same(tmp_path):
    with workers(tmp_path, order(0, DEAF), order(1, STOPS_AFTER_STEP)) as processes:
        until((tmp_path / "child").exists)
        until(lambda: (tmp_path / "child").read_text() and (tmp_path / "ready").exists())
        child = psutil.Process(int((tmp_path / "child").read_text()))
        assert processes.stop(step_s=0.3, end_s=0.3) == []
        assert states(processes) == ["stopped", "stopped"]
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_the_children_of_a_killed_worker_end_too(tmp_path):
    with workers(tmp_path, order(0, DEAF)) as processes:
        until((tmp_path / "ready").exists)
        child = psutil.Process(int((tmp_path / "child").read_text()))
        os.kill(processes.statuses()[0].process_id, signal.SIGKILL)
        until_over(processes)
        until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_stop_at_any_moment_of_the_start_is_no_crash(tmp_path):
    for wait_s in (0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04):
        with workers(tmp_path, order(0, STOPS_AFTER_STEP)) as processes:
            time.sleep(wait_s)
            assert processes.stop(after_step=True) == []
            assert states(processes) == ["stopped"]


def test_a_worker_that_fails_to_stop_in_order_is_told(tmp_path):
    fails = STOPS_AFTER_STEP.replace("print('saved'); sys.exit(130)", "raise OSError('disk full')")
    with workers(tmp_path, order(0, fails), restarts=AT_ONCE) as processes:
        until((tmp_path / "ready").exists)
        (crash,) = processes.stop(after_step=True)
        assert states(processes) == ["failed"]
    assert (crash.reason, crash.restarts_left) == ("OSError: disk full", 0)


def test_a_stop_while_waiting_for_a_restart_starts_nobody(tmp_path):
    with workers(tmp_path, order(0, "raise ValueError"), restarts=RestartRules(first_delay_s=60)) as processes:
        until(processes.poll)
        assert states(processes) == ["waiting"]
        processes.stop()
        assert states(processes) == ["stopped"]


def test_this_process_keeps_its_signal_handlers(tmp_path):
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = [signal.getsignal(number) for number in numbers]
    with workers(tmp_path, order(0, "")) as processes:
        assert [signal.getsignal(number) for number in numbers] == before
        until_over(processes)


def test_logs_that_cannot_be_written_name_machine_and_mend(tmp_path):
    (tmp_path / "run").write_text("in the way")
    with pytest.raises(RunFolderError, match="rosa-0 cannot be started on rosa"), workers(tmp_path, order(0, "")):
        pass


def test_workers_whose_starter_was_killed_make_room_for_new_ones(tmp_path):
    starter = forked.start(start_and_wait, [tmp_path], output=tmp_path / "output", variables={})
    until((tmp_path / "ready").exists)
    left = psutil.Process(int((tmp_path / "run" / "logs" / "rosa-0.lock").read_text()))
    child = psutil.Process(int((tmp_path / "child").read_text()))
    os.kill(starter.pid, signal.SIGKILL)
    starter.join()
    starter.close()
    assert left.is_running()
    with workers(tmp_path, order(0, "print('new')")) as processes:
        assert until_over(processes) == []
    until(lambda: all(not old.is_running() or old.status() == psutil.STATUS_ZOMBIE for old in (left, child)))
    assert log(tmp_path, "rosa-0.start-2.out.log") == "new\n"


def start_and_wait(folder):
    code = DEAF.replace("SIGINT, signal.SIGTERM", "SIGINT,")  # SIGKILL would come after five more seconds
    with workers(folder, order(0, code)):
        time.sleep(100)


@pytest.mark.parametrize(
    ("exit_code", "stopping", "meaning"),
    [
        (0, False, "finished"), (0, True, "finished"), (130, False, "stopped"), (143, True, "stopped"),
        (-2, True, "stopped"), (-15, True, "stopped"), (-9, True, "stopped"), (-9, False, "crashed"),
        (-15, False, "crashed"), (1, True, "crashed"), (1, False, "crashed"), (-11, True, "crashed"),
    ],
)  # fmt: skip
def test_exit_codes_mean(exit_code, stopping, meaning):
    assert judge(exit_code, stopping=stopping) == meaning


def test_delays_double_up_to_a_limit():
    rules = RestartRules(first_delay_s=1, longest_delay_s=30)
    assert [rules.delay_s(n) for n in (0, 1, 2, 3, 4, 5, 10_000)] == [1, 2, 4, 8, 16, 30, 30]


def test_the_engine_leaves_after_its_step(workplace):
    command = (sys.executable, "-c", "from potluck.cli import main; main()", "train", *SMALL, "--epochs", "1000")
    training = WorkerOrder(
        number=0, command=(*command, "--experiment-name", "one"), variables={"POTLUCK_MACHINE": "rosa"}
    )
    events = Path("experiments/one/events/rosa-0.jsonl")

    def records():
        return [record.event for record in read_records(events)] if events.exists() else []

    with workers(workplace, training) as processes:
        until(lambda: any(isinstance(event, StepCommitted) for event in records()), timeout_s=60)
        assert processes.stop(after_step=True) == []
        assert states(processes) == ["stopped"]
    assert isinstance(records()[-1], RunEnded)
    assert records()[-1].reason == "stopped"
    assert list(Path("experiments/one/checkpoints").glob("*.pth"))
