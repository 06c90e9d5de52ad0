"""What can happen to a machine, and that it happens when it is told to."""

import signal
import sys
import time
from pathlib import Path

import pytest

from lab import Lab, LabError, LabTimeoutError, Machine, Process

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(60)]

COUNT = """
import itertools, time
for step in itertools.count():
    print("step", step)
    time.sleep(0.01)
"""
ECHO = """
import socket
server = socket.create_server(("", 5000))
print("listening")
connection, _ = server.accept()
while (data := connection.recv(100)):
    connection.sendall(data)
"""
ASK = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 5000), timeout=30)
while True:
    began = time.monotonic()
    connection.sendall(b"x")
    connection.recv(1)
    print(f"answered after {time.monotonic() - began:.2f} s")
    time.sleep(0.05)
"""


def is_silent(asking: Machine, asked: Machine) -> bool:
    return asking.run(["ping", "-c", "3", "-i", "0.3", "-W", "1", asked.address]).returncode == 1


def answers(asking: Machine, asked: Machine) -> bool:
    # After a silence the kernel asks for the neighbour's hardware address once a second.
    return asking.run(["ping", "-c", "1", "-w", "5", asked.address]).returncode == 0


def start_conversation(lab: Lab) -> tuple[Process, Process]:
    server = lab["lily"].start([sys.executable, "-c", ECHO])
    server.expect("listening", 10)
    client = lab["rosa"].start([sys.executable, "-c", ASK, "lily"])
    client.expect("answered", 10)
    return server, client


def test_a_frozen_machine_answers_nothing_and_returns() -> None:
    with Lab("laptops") as lab:
        rosa, lily = lab["rosa"], lab["lily"]
        server, client = start_conversation(lab)
        counter = lily.start([sys.executable, "-c", COUNT])
        counter.expect("step 5", 10)
        lily.freeze()
        time.sleep(0.2)
        num_lines, num_answers = counter.output.count("\n"), client.output.count("\n")
        assert lily.is_frozen()
        assert is_silent(rosa, lily)
        time.sleep(1.0)
        assert counter.output.count("\n") == num_lines
        assert client.output.count("\n") == num_answers
        assert answers(rosa, lab["fern"])
        lily.thaw()
        counter.expect(f"step {num_lines + 5}", 5)
        assert answers(rosa, lily)
        # The same connection goes on: a lid that was closed for seconds breaks nothing.
        while client.output.count("\n") < num_answers + 3:
            client.expect("answered", 10)
        assert client.returncode is None
        assert server.returncode is None


def test_a_machine_whose_processes_stop_still_has_a_kernel_that_answers() -> None:
    with Lab("laptops") as lab:
        rosa, lily = lab["rosa"], lab["lily"]
        server = lily.start([sys.executable, "-c", ECHO])
        server.expect("listening", 10)
        lily.freeze(kernel_answers=True)
        assert answers(rosa, lily)
        connect = f"import socket; socket.create_connection(({lily.address!r}, 5000), timeout=2); print('connected')"
        assert "connected" in rosa.run([sys.executable, "-c", connect]).output
        lily.thaw()
        assert server.wait(10) == 0


def test_a_cut_cable_drops_and_returns() -> None:
    with Lab("laptops") as lab:
        rosa, lily = lab["rosa"], lab["lily"]
        _, client = start_conversation(lab)
        lily.cut()
        assert lily.is_cut()
        assert is_silent(rosa, lily)
        assert "NO-CARRIER" in lily.run(["ip", "link", "show", "eth0"]).output
        assert answers(rosa, lab["fern"])
        lily.mend()
        assert not lily.is_cut()
        assert answers(rosa, lily)
        num_answers = client.output.count("\n")
        while client.output.count("\n") < num_answers + 3:
            client.expect("answered", 10)


def test_a_frozen_machine_that_is_mended_stays_silent() -> None:
    with Lab("laptops") as lab:
        rosa, lily = lab["rosa"], lab["lily"]
        lily.cut()
        lily.freeze()
        lily.mend()
        assert is_silent(rosa, lily)
        lily.cut()
        lily.thaw()
        assert is_silent(rosa, lily)
        lily.mend()
        assert answers(rosa, lily)


@pytest.mark.parametrize("frozen", [False, True])
def test_kill_ends_every_process_of_one_machine(frozen: bool) -> None:
    with Lab("laptops") as lab:
        rosa, lily = lab["rosa"], lab["lily"]
        family = lily.start(["sh", "-c", "setsid sleep 1000 & sleep 1000 & echo started; wait"])
        elsewhere = rosa.start(["sleep", "1000"])
        family.expect("started", 10)
        if frozen:
            lily.freeze()
        lily.kill()
        assert family.wait(5) == -signal.SIGKILL
        assert lily.usage().num_processes == 0
        assert elsewhere.returncode is None
        assert lily.run(["hostname"]).output == "lily"
        assert answers(rosa, lily)


def test_a_fault_comes_with_a_line_of_output_and_ends_by_the_clock() -> None:
    with Lab("laptops") as lab:
        lily = lab["lily"]
        counter = lily.start([sys.executable, "-c", COUNT])
        cut = lab.when_printed(counter, "step 30", lily.cut)
        mended = cut.then(0.5, lily.mend)
        cut_s = cut.wait(10)
        assert lily.is_cut()
        num_steps = counter.output.count("\n")
        assert 30 <= num_steps < 45, "the fault came late"
        assert mended.wait(10) - cut_s == pytest.approx(0.5, abs=0.2)
        assert not lily.is_cut()
        began_s = time.monotonic()
        frozen_s = lab.after(0.3, lily.freeze).wait(10)
        assert frozen_s - began_s == pytest.approx(0.3, abs=0.2)
        # One that follows what has already happened counts from then.
        assert cut.then(0.0, lily.thaw).wait(5) > frozen_s


def test_a_fault_that_never_came_fails_the_test_it_was_for() -> None:
    def wait_for_the_wrong_line() -> None:
        with Lab("laptops") as lab:
            process = lab["lily"].start(["echo", "step 6"])
            lab.when_printed(process, "step 7", lab["lily"].cut)
            process.wait(10)

    with pytest.raises(LabError, match="cut lily when lily prints 'step 7' never happened"):
        wait_for_the_wrong_line()
    with Lab("laptops") as lab:
        lab.after(1000, lab["lily"].cut).cancel()


def test_an_error_inside_the_lab_is_not_hidden_by_a_fault_that_never_came() -> None:
    def fail_before_the_fault() -> None:
        with Lab("laptops") as lab:
            lab.after(1000, lab["lily"].cut)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_before_the_fault()


def test_what_a_fault_raises_reaches_the_test() -> None:
    def fail() -> None:
        raise ValueError("no such fault")

    def schedule_a_failure() -> None:
        with Lab("laptops") as lab:
            lab.after(0.0, fail)
            time.sleep(0.1)

    with pytest.raises(ValueError, match="no such fault"):
        schedule_a_failure()


def test_output_comes_line_by_line_and_waits_have_an_end() -> None:
    with Lab("laptops") as lab:
        process = lab["fern"].start([sys.executable, "-c", COUNT])
        lines = process.lines(timeout_s=10)
        assert [next(lines) for _ in range(3)] == ["step 0", "step 1", "step 2"]
        assert process.expect("step 2", 10) == "step 2"
        assert process.expect("step", 10) == "step 3"
        with pytest.raises(LabTimeoutError, match=r"still runs after 0\.1 s; its last lines:\n"):
            process.wait(0.1)
        with pytest.raises(LabTimeoutError, match=r"printed no line with 'stop' in 0\.1 s"):
            process.expect("stop", 0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT or process.returncode == 130
        assert "KeyboardInterrupt" in process.output
        with pytest.raises(LabError, match=r"ended with status .* and did not print 'stop'"):
            process.expect("stop", 10)
        assert list(process.lines()) == process.output.split("\n")


def test_programs_get_the_environment_and_the_directory_they_are_given(tmp_path: Path) -> None:
    with Lab("laptops") as lab:
        done = lab["rosa"].run(["sh", "-c", "echo $POT; pwd"], env={"POT": "luck"}, cwd=str(tmp_path))
        assert done.output == f"luck\n{tmp_path}"
        missing = lab["rosa"].run(["no-such-program"])
        assert missing.returncode == 127
        assert "no-such-program" in missing.output
        with pytest.raises(LabTimeoutError, match="sleep 1000 on rosa still runs"):
            lab["rosa"].run(["sleep", "1000"], timeout_s=0.1)
