"""A run's sharing process, from its agent's side: started with the folders, told the peers, restarted if it ends."""

import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from potluck.sharing.messages import SharingSettings, SharingState

_AGAIN_S = 0.5
_END_S = 5.0


class SharingProcess:
    """The process; `state` is what it wrote last."""

    def __init__(self, settings: SharingSettings) -> None:
        self._settings = settings
        self._folder = Path(tempfile.mkdtemp(prefix="potluck-"))
        self.socket = self._folder / "sharing"
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self.state = SharingState(port=0, have_bytes=0, total_bytes=0)
        self._process = self._start()
        self._thread = threading.Thread(target=self._keep, name="potluck-sharing", daemon=True)
        self._thread.start()

    def update(self, settings: SharingSettings) -> None:
        """Tell the process its peers."""
        with self._lock:
            if settings != self._settings:
                self._settings = settings
                self._send()

    def close(self) -> None:
        with self._lock:
            self._is_over.set()
            process = self._process
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> "subprocess.Popen[bytes]":
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "potluck.sharing.main", "--socket", str(self.socket)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._send()
        return self._process

    def _send(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has just ended: the next one gets the settings
            self._process.stdin.write(msgspec.json.encode(self._settings) + b"\n")
            self._process.stdin.flush()

    def _keep(self) -> None:
        """Read what the process writes; if it ends, start another one, which goes on where this one was."""
        while True:
            process = self._process
            assert process.stdin is not None
            assert process.stdout is not None
            with process.stdout as lines:
                for line in lines:
                    with suppress(msgspec.MsgspecError):  # a last line that was cut off
                        self.state = msgspec.json.decode(line, type=SharingState)
            process.wait()
            with suppress(OSError):
                process.stdin.close()
            if self._is_over.wait(_AGAIN_S):
                return
            with self._lock:
                if self._is_over.is_set():
                    return
                self._start()
