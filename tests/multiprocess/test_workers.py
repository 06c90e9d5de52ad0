"""A run's workers, forked as the fork server forks them: logs, restarts, what is told of a crash, a gentle end."""

import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from potluck.events.log import read_records
from potluck.events.types import RunEnded, StepCommitted
from potluck.meeting.transfer.shipping import check_file_name
from potluck.meeting.workers.messages import ScriptTask, StartWorkers
from potluck.meeting.workers.processes import RestartRules, WorkerProcesses, judge
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


def wanted(folder, *codes, variables=None):
    """Worker n runs the n-th script: all have the same task, as in the product, and it chooses by the number."""
    for number, code in enumerate(codes):
        (folder / f"worker{number}.py").write_text(code)
    (folder / "script.py").write_text("import os, runpy; runpy.run_path(f\"worker{os.environ['NUMBER']}.py\")")
    return StartWorkers(
        run="one",
        machine="rosa",
        run_folder=str(folder / "run"),
        folder=str(folder),
        task=ScriptTask(entry="script.py", arguments=[]),
        workers={number: {"NUMBER": str(number), **(variables or {})} for number in range(len(codes))},
    )


@contextmanager
def workers(folder, *codes, restarts=ONCE, variables=None):
    processes = WorkerProcesses(wanted(folder, *codes, variables=variables), restarts)
    seen = Seen(processes)
    try:
        seen.look()
        yield seen
    finally:
        processes.stop(after_step=False)


class Seen:
    """All news of a run's workers."""

    def __init__(self, processes):
        self.processes = processes
        self.news = []

    def look(self):
        self.news += self.processes.poll()
        return self.news

    @property
    def states(self):
        """Each worker's latest."""
        self.look()
        return [self.of(number)[-1].state for number in sorted({news.worker for news in self.news})]

    @property
    def crashes(self):
        self.look()
        return [news for news in self.news if news.message]

    def of(self, number):
        return [news for news in self.news if news.worker == number]

    def until_over(self):
        until(lambda: not {"running"} & set(self.states))
        return self.states

    def stop(self, **options):
        self.processes.stop(**options)
        return self.states


def until(condition, timeout_s=30):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def log(folder, name):
    return (folder / "run" / "logs" / name).read_text()


def process_of(folder, number=0):
    return psutil.Process(int((folder / "run" / "logs" / f"rosa-{number}.lock").read_text()))


def is_gone(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def errors(folder):
    return list((folder / "run" / "logs").glob("*.err.log"))


def test_each_worker_has_its_own_variables_folder_and_logs(tmp_path):
    code = "import os, sys; print(os.getcwd(), os.environ['NUMBER']); sys.stderr.write(repr(sys.stdin.read()))"
    with workers(tmp_path, code, code) as seen:
        assert seen.until_over() == ["finished", "finished"]
        assert not seen.crashes
    assert log(tmp_path, "rosa-0.start-1.out.log") == f"{tmp_path} 0\n"
    assert log(tmp_path, "rosa-1.start-1.out.log") == f"{tmp_path} 1\n"
    assert log(tmp_path, "rosa-1.start-1.err.log") == "''"
    for file in (tmp_path / "run" / "logs").glob("*.log"):
        check_file_name(f"logs/{file.name}", "rosa")


def test_a_secret_is_in_no_argument_and_in_no_environment_that_can_be_read(tmp_path):
    code = f"import os; assert os.environ['POTLUCK_SECRET'] == 'hush'; {READY} import time; time.sleep(100)"
    with workers(tmp_path, code, variables={"POTLUCK_SECRET": "hush"}):
        until((tmp_path / "ready").exists)
        process = process_of(tmp_path)
        assert "hush" not in " ".join([*process.cmdline(), *process.environ().values()])


def test_a_crash_is_told_once_with_the_scripts_frames_and_its_log_has_all_of_them(tmp_path):
    with workers(tmp_path, "raise ValueError('no')", "") as seen:
        assert seen.until_over() == ["failed", "finished"]
        (crash,) = seen.crashes
    assert (crash.run, crash.worker, crash.state, crash.restarts) == ("one", 0, "failed", 0)
    lines = crash.message.splitlines()
    assert (lines[0], lines[-1]) == ("Traceback (most recent call last):", "ValueError: no")
    assert "<frozen runpy>" not in crash.message
    whole = log(tmp_path, "rosa-0.start-1.err.log")
    assert "<frozen runpy>" in whole
    assert "ValueError: no" in whole


def test_one_crash_leaves_the_other_workers_alone(tmp_path):
    with workers(tmp_path, "raise ValueError", STOPS_AFTER_STEP) as seen:
        until(lambda: seen.crashes)
        until((tmp_path / "ready").exists)
        assert seen.states == ["failed", "running"]


def test_restarts_are_limited_and_every_start_has_its_own_logs(tmp_path):
    again = "import sys; sys.stderr.write('told'); raise ValueError('again')"
    with workers(tmp_path, again, restarts=AT_ONCE) as seen:
        assert seen.until_over() == ["failed"]
        assert [(crash.state, crash.restarts) for crash in seen.crashes] == [
            ("running", 0),
            ("running", 1),
            ("running", 2),
            ("failed", 2),
        ]
    assert sorted(file.name for file in errors(tmp_path)) == [f"rosa-0.start-{n}.err.log" for n in (1, 2, 3)]
    assert all("told" in file.read_text() for file in errors(tmp_path))


def test_a_restarted_worker_may_finish(tmp_path):
    code = (
        "import os, signal\nif not os.path.exists('once'):\n    open('once', 'w'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    with workers(tmp_path, code, restarts=AT_ONCE) as seen:
        assert seen.until_over() == ["finished"]
        assert [(crash.state, crash.restarts) for crash in seen.crashes] == [
            ("running", 0),
            ("running", 1),  # the crash stays in sight of a display that asks rarely
            ("finished", 1),
        ]
    assert all("SIGKILL" in crash.message for crash in seen.crashes)


def test_an_exception_is_told_where_stderr_is_closed_and_half_a_record_of_it_does_no_harm(tmp_path):
    closed = "import os; os.close(2); raise ValueError('recorded')"
    half = (
        "import os, sys; open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('{')\n"
        "sys.stderr.write('half\\n'); os.kill(os.getpid(), 9)"
    )
    with workers(tmp_path, closed, half) as seen:
        assert seen.until_over() == ["failed", "failed"]
        recorded, cut = (next(crash for crash in seen.crashes if crash.worker == number) for number in (0, 1))
    assert recorded.message.endswith("ValueError: recorded")
    assert cut.message.endswith("half")


def test_a_gentle_stop_waits_for_the_step(tmp_path):
    with workers(tmp_path, STOPS_AFTER_STEP, restarts=AT_ONCE) as seen:
        until((tmp_path / "ready").exists)
        assert seen.stop(after_step=True) == ["stopped"]
        assert not seen.crashes
    assert log(tmp_path, "rosa-0.start-1.out.log") == "saved\n"


def test_a_stop_works_where_this_process_ignores_ctrl_c(tmp_path):
    """As a shell starts what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with workers(tmp_path, f"{READY} import time; time.sleep(100)") as seen:
            until((tmp_path / "ready").exists)
            began = time.monotonic()
            assert seen.stop(after_step=True) == ["stopped"]
            assert time.monotonic() - began < 10
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_deaf_worker_and_its_children_end_all_the_same(tmp_path):
    with workers(tmp_path, DEAF, STOPS_AFTER_STEP) as seen:
        until((tmp_path / "child").exists)
        until(lambda: (tmp_path / "child").read_text() and (tmp_path / "ready").exists())
        child = psutil.Process(int((tmp_path / "child").read_text()))
        assert seen.stop(step_s=0.3, end_s=0.3) == ["stopped", "stopped"]
        assert not seen.crashes
    until(lambda: is_gone(child))


def test_the_children_of_a_killed_worker_end_too(tmp_path):
    with workers(tmp_path, DEAF) as seen:
        until((tmp_path / "ready").exists)
        child = psutil.Process(int((tmp_path / "child").read_text()))
        process_of(tmp_path).kill()
        seen.until_over()
        until(lambda: is_gone(child))


def test_a_stop_at_any_moment_of_the_start_is_no_crash(tmp_path):
    for wait_s in (0, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03):
        with workers(tmp_path, STOPS_AFTER_STEP) as seen:
            time.sleep(wait_s)
            assert seen.stop(after_step=True) == ["stopped"]
            assert not seen.crashes


def test_a_worker_that_fails_to_stop_in_order_is_told(tmp_path):
    fails = STOPS_AFTER_STEP.replace("print('saved'); sys.exit(130)", "raise OSError('disk full')")
    with workers(tmp_path, fails, restarts=AT_ONCE) as seen:
        until((tmp_path / "ready").exists)
        assert seen.stop(after_step=True) == ["failed"]
        (crash,) = seen.crashes
    assert crash.message.endswith("OSError: disk full")


def test_a_stop_while_waiting_for_a_restart_starts_nobody(tmp_path):
    with workers(tmp_path, "raise ValueError", restarts=RestartRules(first_delay_s=60)) as seen:
        until(lambda: seen.crashes)
        assert seen.states == ["running"]  # it waits to be started again
        assert seen.stop() == ["stopped"]
    assert len(errors(tmp_path)) == 1


def test_this_process_keeps_its_signal_handlers(tmp_path):
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = [signal.getsignal(number) for number in numbers]
    with workers(tmp_path, "") as seen:
        assert [signal.getsignal(number) for number in numbers] == before
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(numbers)
        seen.until_over()


def test_logs_that_cannot_be_written_name_machine_and_mend(tmp_path):
    (tmp_path / "run").write_text("in the way")
    with workers(tmp_path, "") as seen:
        assert seen.states == ["failed"]
        assert "rosa-0 cannot be started on rosa" in seen.news[-1].message
        assert "fix: check space and rights on rosa" in seen.news[-1].message


def test_workers_whose_fork_server_was_killed_make_room_for_new_ones(tmp_path):
    starter = forked.start(start_and_wait, [tmp_path], output=tmp_path / "output", variables={})
    until((tmp_path / "ready").exists)
    left = process_of(tmp_path)
    child = psutil.Process(int((tmp_path / "child").read_text()))
    os.kill(starter.pid, signal.SIGKILL)
    starter.join()
    starter.close()
    assert left.is_running()
    with workers(tmp_path, "print('new')") as seen:
        assert seen.until_over() == ["finished"]
    until(lambda: is_gone(left) and is_gone(child))
    assert log(tmp_path, "rosa-0.start-2.out.log") == "new\n"


def start_and_wait(folder):
    code = DEAF.replace("SIGINT, signal.SIGTERM", "SIGINT,")  # SIGKILL would come after five more seconds
    with workers(folder, code):
        time.sleep(100)


@pytest.mark.parametrize(
    ("exit_code", "stopping", "meaning"),
    [
        (0, False, "finished"), (0, True, "finished"), (130, False, "stopped"), (143, True, "stopped"),
        (-2, True, "stopped"), (-15, True, "stopped"), (-9, True, "stopped"), (-9, False, "failed"),
        (-15, False, "failed"), (1, True, "failed"), (1, False, "failed"), (-11, True, "failed"),
    ],
)  # fmt: skip
def test_exit_codes_mean(exit_code, stopping, meaning):
    assert judge(exit_code, stopping=stopping) == meaning


def test_delays_double_up_to_a_limit():
    rules = RestartRules(first_delay_s=1, longest_delay_s=30)
    assert [rules.delay_s(n) for n in (0, 1, 2, 3, 4, 5, 10_000)] == [1, 2, 4, 8, 16, 30, 30]


def test_the_engine_leaves_after_its_step(workplace):
    arguments = ["train", *SMALL, "--epochs", "1000", "--experiment-name", "one"]
    events = Path("experiments/one/events/rosa-0.jsonl")

    def records():
        return [record.event for record in read_records(events)] if events.exists() else []

    code = f"import sys; sys.argv = {['potluck', *arguments]!r}; from potluck.cli import main; main()"
    with workers(workplace, code, variables={"POTLUCK_NAME": "rosa"}) as seen:
        until(lambda: any(isinstance(event, StepCommitted) for event in records()), timeout_s=60)
        assert seen.stop(after_step=True) == ["stopped"]
        assert not seen.crashes
    assert isinstance(records()[-1], RunEnded)
    assert records()[-1].reason == "stopped"
    assert list(Path("experiments/one/checkpoints").glob("*.pth"))
