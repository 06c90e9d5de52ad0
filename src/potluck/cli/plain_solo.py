"""`potluck run --plain --solo`: one process of the script for each device of this machine, as torchrun starts them."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from potluck.cli.crashes import fix_of_plain
from potluck.core.environment import plain_solo_variables
from potluck.core.errors import MeetingError
from potluck.core.exit_codes import STOPPED
from potluck.core.run_variables import parse_variables
from potluck.core.shell_words import quote
from potluck.core.torchrun_variables import plain_devices, torchrun_variables
from potluck.core.words import counted
from potluck.doctor.explain import explain
from potluck.doctor.lost_peer import tells_of_lost_peer
from potluck.machine.device_list import read_devices
from potluck.machine.software import find_devices
from potluck.meeting.workers.crash import crash_text, read_tail

_ADDRESS = "127.0.0.1"
_POLL_S = 0.05
_END_S = 4.0  # each for SIGINT and SIGTERM
_EFFECTS_S = 2.0  # after the first failure: others that fail within it may tell the cause


def run_plain_solo(script: Path, arguments: Sequence[str], env: list[str], *, devices: str | None) -> int:
    """Run the script until all its processes have ended; returns the exit code, raises if one of them failed."""
    from potluck.cli.saying import warn
    from potluck.engine.group.listening import make_store

    own = plain_devices(find_devices()[0] if devices is None else read_devices(devices))
    warn(f"{script.name} on this machine: {counted(len(own), 'process', 'processes')}, for {', '.join(own)}")
    store = make_store(_ADDRESS)  # torch's own would listen on all addresses
    with ExitStack() as stack:
        errors = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="potluck-plain-")))
        processes = []
        for rank in range(len(own)):
            variables = torchrun_variables(
                run=script.stem,
                master=(_ADDRESS, store.port),
                rank=rank,
                world_size=len(own),
                local_rank=rank,
                local_world_size=len(own),
            )
            process = subprocess.Popen(  # noqa: S603  no shell: the user's own script
                [sys.executable, str(script), *arguments],
                env=plain_solo_variables({**parse_variables(env), **variables}, own),
                start_new_session=True,  # Ctrl-C comes to this process, which passes it on
                stderr=None if len(own) == 1 else subprocess.PIPE,
            )
            processes.append(process)
            if process.stderr is not None:
                # The terminal shows what rank 0 says; what the others say is shown if one of them fails.
                copy = threading.Thread(target=_copy, args=(process.stderr, errors / f"{rank}.err", rank == 0))
                copy.start()
                stack.callback(copy.join)
        try:
            for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: the processes must not stay behind
                signal.signal(number, signal.default_int_handler)
            _wait(processes)
        except KeyboardInterrupt:
            return STOPPED
        finally:
            _end(processes)
        texts = {
            rank: crash_text(one.returncode, _said_by(rank, errors / f"{rank}.err"), "", script.parent.absolute())
            for rank, one in enumerate(processes)
            if one.returncode
        }
    if texts:
        raise _failure(script, texts, len(own))
    return 0


def _copy(source: IO[bytes], file: Path, is_shown: bool) -> None:
    with source, file.open("wb", buffering=0) as kept:
        while content := os.read(source.fileno(), 1 << 16):
            kept.write(content)
            if is_shown:
                sys.stderr.buffer.write(content)
                sys.stderr.flush()


def _said_by(rank: int, file: Path) -> str:
    """What a process wrote to stderr, without the prefix that torch gives to its traceback."""
    return read_tail(file).replace(f"[rank{rank}]: ", "")


def _wait(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Wait until all have ended; after a failure only for a moment longer."""
    deadline = float("inf")
    while any(one.poll() is None for one in processes) and time.monotonic() < deadline:
        if deadline == float("inf") and any(one.returncode for one in processes):
            deadline = time.monotonic() + _EFFECTS_S
        time.sleep(_POLL_S)


def _end(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    """End those that still run: SIGINT, then SIGTERM, then SIGKILL."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        living = [one for one in processes if one.poll() is None]
        for one in living:
            one.send_signal(number)
        deadline = time.monotonic() + _END_S
        for one in living:
            with suppress(subprocess.TimeoutExpired):
                one.wait(max(0.0, deadline - time.monotonic()))


def _failure(script: Path, texts: dict[int, str], num_processes: int) -> MeetingError:
    """The error of the first rank that did not fail because of another one."""
    causes = [rank for rank, text in texts.items() if not tells_of_lost_peer(text)]
    rank = next(iter(causes or texts))
    known = [f"{one.cause}: {fix_of_plain(one.fix)}" for one in explain(texts[rank])]
    said = f":\n{texts[rank]}" if rank else f": {texts[rank].splitlines()[-1]}; what it said is above"
    where = f" in rank {rank}" if num_processes > 1 else ""
    fix = f"look for the cause in {quote(script)}, then type the command again"
    return MeetingError(f"{script.name} failed{where}{said}", fix="; ".join(known) or fix)
