"""A worker's questions to its machine's sharing process."""

import errno
import os
import socket
import sys
import threading
import time
from contextlib import suppress

import msgspec

from potluck.core.errors import SharingError
from potluck.sharing.messages import Expect, Found, FromWorker, Look, Want, WantAll

_FIND_S = 20.0
_AGAIN_S = 0.2
_TELL_S = 10.0
_LONGEST = 1 << 16


class SharingLine:
    """Asks over one connection for each thread and process: DataLoader's worker processes are forks of this one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._local = threading.local()

    def await_ready(self) -> None:
        """Wait until all files can be seen, arrived or not."""
        self._ask(Look(folder="", path=""))

    def look(self, folder: str, path: str) -> int:
        """A file's size; FileNotFoundError if the folder has no such file."""
        found = self._ask(Look(folder=folder, path=path))
        if found.size < 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{folder}/{path}")
        return found.size

    def want(self, folder: str, path: str, start: int = 0, end: int | None = None) -> Found:
        """Wait until bytes of a file are here."""
        found = self._ask(Want(folder=folder, path=path, start=start, end=end))
        if found.size < 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{folder}/{path}")
        return found

    def want_all(self, folder: str) -> None:
        """Wait until a whole folder is here."""
        self._ask(WantAll(folder=folder))

    def expect(self, samples: list[int], num_now: int, num_samples: int) -> None:
        """Say which samples of a dataset are needed soon, the first `num_now` of them in this step."""
        told = Expect(samples=samples, num_now=num_now, num_samples=num_samples)
        with suppress(OSError):  # what is not known in advance comes when it is asked for
            self._connect().sendall(msgspec.json.encode(told) + b"\n")

    def _ask(self, question: FromWorker) -> Found:
        """The answer; asks again if the sharing process was restarted meanwhile."""
        deadline = time.monotonic() + _FIND_S
        while True:
            try:
                return self._exchange(question)
            except OSError as error:
                self._local.connection = None
                if time.monotonic() > deadline:
                    raise SharingError(
                        f"the process that brings this run's data to this machine does not answer: {error}",
                        fix="see what potluck join or potluck host prints on this machine",
                    ) from None
                time.sleep(_AGAIN_S)

    def _exchange(self, question: FromWorker) -> Found:
        connection, received, asked_at = self._connect(), b"", time.monotonic()
        connection.sendall(msgspec.json.encode(question) + b"\n")
        while not received.endswith(b"\n"):
            try:
                piece = connection.recv(_LONGEST)
            except TimeoutError:
                _tell_waiting(question, time.monotonic() - asked_at)
                continue
            if not piece:
                raise ConnectionResetError("it has ended")
            received += piece
        found = msgspec.json.decode(received, type=Found)
        if found.trouble:
            raise SharingError(found.trouble, fix="see what potluck join or potluck host prints on this machine")
        return found

    def _connect(self) -> socket.socket:
        if getattr(self._local, "connection", None) is None or self._local.process != os.getpid():
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(_TELL_S)
            connection.connect(self._path)
            self._local.connection, self._local.process = connection, os.getpid()
        found: socket.socket = self._local.connection
        return found


def _tell_waiting(question: FromWorker, waited_s: float) -> None:
    if isinstance(question, Want | WantAll):
        path = f"{question.folder}/{question.path}" if isinstance(question, Want) else f"all of {question.folder}"
        sys.stderr.write(f"waits for {path}, which has not arrived yet: {waited_s:.0f} s\n")
