"""Answers a visit's measuring questions on this machine; measurements need torch and run in other processes."""

import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress

import msgspec

from potluck.core.environment import as_machine, gate_variables, read_environment
from potluck.core.errors import MeetingError
from potluck.measuring.profile_store import StoredProfile, find_profiles, save_profile
from potluck.meeting.questions import (
    MEASURE_S,
    SELF_TEST_S,
    SWEEP_S,
    LinksSwept,
    MachineTested,
    MeasureModel,
    ProfilesTold,
    SweepLinks,
    TellProfiles,
    TestMachine,
)
from potluck.planning.costs import LinkProfile

_LOOK_S = 0.1
_END_S = 3.0


class MeasuringStation:
    """Answers measuring questions for this machine; setting `over` kills a measurement in progress."""

    def __init__(self, machine: str, gate: str, run: str, threads: int | None, over: threading.Event) -> None:
        self._machine = machine
        self._gate = gate
        self._run_name = run
        self._threads = threads
        self._over = over

    def ask(
        self, question: MeasureModel | TellProfiles | SweepLinks | TestMachine
    ) -> ProfilesTold | LinksSwept | MachineTested:
        """Answer one question; returns when the measurement has ended."""
        match question:
            case MeasureModel():
                return ProfilesTold(profiles=(self._measure(question).model_dump_json(),))
            case TellProfiles(model=model, mixed_precision=precision):
                kept = find_profiles(read_environment().home, model, precision)
                return ProfilesTold(profiles=tuple(one.model_dump_json() for one in kept if self._is_mine(one)))
            case SweepLinks():
                line = msgspec.json.encode(question) + b"\n"
                told = self._run(["-m", "potluck.probes.link_sweep"], line, SWEEP_S, question.address)
                return msgspec.json.decode(told, type=LinksSwept)
            case TestMachine():
                return MachineTested(document=self._test(question))

    def _is_mine(self, profile: StoredProfile) -> bool:
        return profile.machine == self._machine

    def _measure(self, wanted: MeasureModel) -> StoredProfile:
        """Run `potluck profile` on this machine, and store the link with the profile if the question names it."""
        options = {
            "--model": wanted.model,
            "--model-size": wanted.model_size,
            "--mixed-precision": wanted.mixed_precision,
            "--device": wanted.device,
            "--global-batch": str(wanted.global_batch),
            "--seconds": str(wanted.seconds),
            **({} if wanted.memory_limit is None else {"--memory-limit": wanted.memory_limit}),
        }
        words = [word for option in options.items() for word in option]
        words += ["--no-tuning"] * (not wanted.tuning) + ["--compile"] * wanted.compiles
        told = self._run(["-m", "potluck", "profile", "--solo", "--json", *words], b"", MEASURE_S)
        profile = StoredProfile.model_validate_json(told)
        if wanted.latency_s is not None and wanted.bytes_per_s is not None:
            link = LinkProfile(latency_s=wanted.latency_s, bandwidth_bytes_per_s=wanted.bytes_per_s)
            peers = {
                name: LinkProfile(latency_s=seen.latency_s, bandwidth_bytes_per_s=seen.bytes_per_s, error=seen.error)
                for name, seen in wanted.peers.items()
            }
            profile = profile.model_copy(update={"link": link, "peers": peers})
            save_profile(read_environment().home, profile)
        return profile

    def _test(self, wanted: TestMachine) -> str:
        """Run `potluck selftest` on this machine; it ends with 1 where a check has failed."""
        words = [word for check in wanted.checks for word in ("--check", check)]
        quick = ["--quick"] if wanted.is_quick else []
        command = ["-m", "potluck", "selftest", "--solo", "--json", *quick, *words]
        return self._run(command, b"", SELF_TEST_S, may_end_with=1).decode()

    def _run(
        self, arguments: list[str], told: bytes, patience_s: float, address: str = "", may_end_with: int = 0
    ) -> bytes:
        """Run Python with these arguments and `told` as its stdin; returns the last line that it prints."""
        deadline = time.monotonic() + patience_s
        with ExitStack() as stack:
            given, printed, errors = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
            given.write(told)
            given.seek(0)
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, *arguments],
                stdin=given,
                stdout=printed,
                stderr=errors,
                env=as_machine(self._machine, self._threads) | gate_variables(self._gate, self._run_name, address),
            )
            stack.callback(process.wait)
            stack.callback(_end, process)
            while process.poll() is None:
                if self._over.wait(_LOOK_S) or time.monotonic() > deadline:
                    raise MeetingError(f"it was not done in {patience_s:.0f} s", fix="give the same command again")
            for file in (printed, errors):
                file.seek(0)
            lines = printed.read().splitlines()
            if process.returncode not in (0, may_end_with) or not lines:
                raise _told_wrong(errors.read().decode(errors="replace"))
            return lines[-1]


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the process if it still runs; it gets a moment to end what it has started."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        process.kill()


def _told_wrong(errors: str) -> MeetingError:
    """The error and fix in a command's stderr, or the last line of its stderr."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    known = {word: line.removeprefix(word) for line in lines for word in ("error: ", "fix: ") if line.startswith(word)}
    last = lines[-1] if lines else "it ended without a word"
    return MeetingError(known.get("error: ", last), fix=known.get("fix: ", "give the same command again"))
