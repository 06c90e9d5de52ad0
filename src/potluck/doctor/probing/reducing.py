"""One machine's part of the all-reduce, in a process of its own with torch, which may hang or crash."""

import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping

import msgspec

from potluck.core.environment import with_variables
from potluck.doctor.examination import Reduction
from potluck.doctor.explain import explain
from potluck.doctor.probing.asks import Reduce
from potluck.machine.facts import Torch

_WORKER = [sys.executable, "-m", "potluck.probes.all_reduce"]
_IMPORT_S = 60.0


class TorchProcess:
    """A process that begins to import torch as soon as it is made. The caller closes it."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(  # noqa: S603
            _WORKER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=with_variables(variables or {}),
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name="doctor torch", daemon=True)
        self._reader.start()
        self._description: Torch | None = None

    def describe(self, version: str) -> Torch:
        """The facts of torch, or the error with which torch failed to import."""
        if self._description is None:
            line = self._next(_IMPORT_S)
            self._description = (
                msgspec.json.decode(line, type=Torch) if line else Torch(version=version, error=self._last_words())
            )
        return self._description

    def reduce(self, wanted: Reduce) -> Reduction:
        """Take part in the all-reduce; an error is given as its known cause, else as the process's last line."""
        if self.describe("").error:
            return self._failed(wanted, f"torch does not import: {self.describe('').error}")
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(wanted) + b"\n")
            self._process.stdin.flush()
        except OSError:  # the process has died: its last words say why
            pass
        # Rendezvous and all-reduce may each take the whole timeout.
        line = self._next(3 * wanted.timeout_s)
        if line:
            told = msgspec.json.decode(line)
            return msgspec.convert({"machine": wanted.machine, **told}, Reduction, strict=False)
        words = self._last_words()
        known = explain(words)
        return self._failed(wanted, known[0].cause if known else words)

    def _failed(self, wanted: Reduce, error: str) -> Reduction:
        return Reduction(machine=wanted.machine, error=error, backend=wanted.backend, device=wanted.device)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            assert stream is not None
            try:
                stream.close()
            except OSError:  # an order that was never read
                continue

    def _next(self, timeout_s: float) -> bytes | None:
        try:
            return self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _last_words(self) -> str:
        """The last line on the process's stderr, apart from torch's warnings, which begin with [W."""
        try:
            self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return "it gave no answer in time"
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line and not line.startswith("[W")), "it ended without a word")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{"):
                self._lines.put(line)
        self._lines.put(None)
