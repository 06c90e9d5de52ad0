"""Prints crashes of workers while a user follows a run: each traceback once, and at the end how to fix it."""

from collections.abc import Callable, Mapping
from typing import Any

from potluck.core.errors import MeetingError
from potluck.core.shell_words import quote
from potluck.doctor.explain import explain
from potluck.meeting.workers.crash import kind_of_crash

_FIX = "\n  fix: "


class CrashTeller:
    """Prints each crash of a run; workers that crash in the same way share one traceback."""

    def __init__(self, say: Callable[[str], None], host: str, names: Mapping[str, str]) -> None:
        self._say = say
        self._host = host
        self._names = names
        self._told: dict[str, set[str]] = {}
        """By kind of crash: the workers that crashed in this way."""

    def look(self, run: dict[str, Any]) -> None:
        """Print new crashes; if the run has failed, `failure` says why.

        Of a plain run nothing is printed before: most of its workers crash because another one did.
        """
        if run["state"] == "failed" or run["is_plain"]:
            return
        for machine, workers in run["workers"].items():
            for worker in workers:
                if worker["message"]:
                    self._print_crash(machine, f"{machine}-{worker['number']}", worker)

    def _print_crash(self, machine: str, name: str, worker: dict[str, Any]) -> None:
        message = worker["message"]
        before = self._told.setdefault(kind_of_crash(message), set())
        if name in before:
            return
        first = min(before, default="")
        before.add(name)
        again = "" if worker["state"] == "failed" else "; it starts again"
        if first:
            self._say(f"worker {name} crashed as {first} did{again}: {message.splitlines()[-1]}")
            return
        self._say(f"worker {name} crashed on {machine}{again}:\n{message}")
        for known in explain(message, self._names):
            self._say(f"cause: {known.cause}\n  fix: {known.fix}")

    def failure(self, run: dict[str, Any]) -> MeetingError:
        """The error of a failed run: why it failed, where, and the fix; a traceback that is printed is not repeated."""
        if run["is_plain"]:
            return self._failure_of_plain(run)
        failures = _failures(run)
        if (
            len(set(map(kind_of_crash, failures.values()))) > 1
        ):  # several machines could not be made ready, each for a reason of its own
            texts, _, fixes = zip(*(message.partition(_FIX) for message in failures.values()), strict=True)
            fix = "; ".join(fix for fix in fixes if fix) or "; ".join(self._fixes(run, run["message"]))
            return MeetingError("\n".join([f"run {run['run']} failed:", *texts]), fix=fix)
        machine, message = next(iter(failures.items()), ("", run["message"]))
        text, _, fix = message.partition(_FIX)
        lines = text.splitlines() or ["no worker is left"]
        is_told = kind_of_crash(message) in self._told
        what = f"{lines[-1]} (the traceback is above)" if is_told and len(lines) > 1 else "\n".join(lines)
        where = f" on {machine}" if machine and len(run["workers"]) > 1 else ""
        between = ": " if "\n" not in what else ":\n"
        return MeetingError(
            f"run {run['run']} failed{where}{between}{what}", fix=fix or "; ".join([*self._fixes(run, message)])
        )

    def _failure_of_plain(self, run: dict[str, Any]) -> MeetingError:
        """The host's message names the machine and the first worker's error; the others ended because of it."""
        text, _, fix = run["message"].partition(_FIX)
        machine, between, error = text.partition(": ")
        what = f": {text or 'no worker is left'}"
        if between and machine in run["workers"]:
            what = f" on {machine}:\n{error}" if "\n" in error else f" on {machine}: {error}"
        return MeetingError(f"run {run['run']} failed{what}", fix=fix or "; ".join(self._fixes(run, run["message"])))

    def _fixes(self, run: dict[str, Any], message: str) -> list[str]:
        explained = explain(message, self._names)
        known = [f"{one.cause}: {fix_of_plain(one.fix) if run['is_plain'] else one.fix}" for one in explained]
        script = run["settings"].get("script")
        plain = "--plain " if run["is_plain"] else ""
        alone = (
            f"potluck run {plain}--solo {quote(script)}" if script else "potluck train --solo, with the same settings"
        )
        what = "the whole traceback" if "Traceback" in message else "all that the workers printed"
        logs = f"{what} is in {run['folder']}/logs on {self._host}"
        return [*known, f"try it on one machine: {alone}", logs]


def fix_of_plain(fix: str) -> str:
    """A fix for a script that does not use Potluck: it does not know Potluck's options."""
    if "--micro-batch" in fix:
        return "lower the batch size in the script"
    return "let the script use gloo, or install a CUDA build of torch on every machine" if "--backend" in fix else fix


def _failures(run: dict[str, Any]) -> dict[str, str]:
    """By machine: the message of a failed worker, if the host has made it part of the run's message."""
    return {
        machine: worker["message"]
        for machine, workers in run["workers"].items()
        for worker in workers
        if worker["message"] and worker["state"] == "failed" and worker["message"] in run["message"]
    }
