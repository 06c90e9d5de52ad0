"""`potluck run --plain --solo`: one process of the script for each device of this machine, as torchrun starts them."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from potluck.cli.crashes import fix_of_plain
from potluck.cli.plain_processes import PlainProcesses, counted_stops
from potluck.core.environment import plain_solo_variables
from potluck.core.errors import MeetingError, SettingsError
from potluck.core.exit_codes import STOPPED
from potluck.core.run_variables import parse_variables
from potluck.core.shell_words import quote
from potluck.core.torchrun_variables import plain_devices, torchrun_variables
from potluck.core.words import counted
from potluck.doctor.explain import explain
from potluck.doctor.lost_peer import tells_of_lost_peer
from potluck.machine.device_list import read_devices
from potluck.machine.hardware import quota_threads
from potluck.machine.software import find_devices
from potluck.meeting.workers.crash import crash_text

_ADDRESS = "127.0.0.1"


def run_plain_solo(script: Path, arguments: Sequence[str], env: list[str], *, devices: str | None) -> int:
    """Run the script until all its processes have ended; returns the exit code, raises if one of them failed."""
    from potluck.cli.saying import warn
    from potluck.engine.group.listening import make_store

    own = _choose(devices)
    warn(f"{script.name} on this machine: {counted(len(own), 'process', 'processes')}, for {', '.join(own)}")
    store = make_store(_ADDRESS)  # torch's own would listen on all addresses
    with tempfile.TemporaryDirectory(prefix="potluck-plain-") as folder, counted_stops() as num_stops:
        processes = PlainProcesses(Path(folder), is_alone=len(own) == 1)
        try:
            for rank in range(len(own)):
                variables = torchrun_variables(
                    run=script.stem,
                    master=(_ADDRESS, store.port),
                    rank=rank,
                    world_size=len(own),
                    local_rank=rank,
                    local_world_size=len(own),
                )
                placed = plain_solo_variables({**parse_variables(env), **variables}, own, quota_threads())
                processes.start([sys.executable, str(script), *arguments], placed)
            failed = processes.wait(is_stopped=lambda: num_stops() > 0)
        finally:
            processes.end(is_hurried=lambda: num_stops() > 1)
        if num_stops():
            return STOPPED
        # Not those that `end` interrupted: their last words are not the cause.
        texts = {
            rank: crash_text(exit_code, processes.said_by(rank), "", script.parent.absolute())
            for rank, exit_code in failed.items()
        }
    if texts:
        raise _failure(script, texts, len(own))
    return 0


def _choose(devices: str | None) -> list[str]:
    """The devices that get a process; a card that is not here is refused: the script would train on the CPU instead."""
    found, _ = find_devices()
    own = plain_devices(found if devices is None else read_devices(devices))
    absent = [one for one in own if one != "cpu" and not {one, f"{one}:0"} & set(found)]
    if absent:
        raise SettingsError(
            f"--devices {devices}: there is no {absent[0]} on this machine; torch finds {', '.join(found)}",
            fix=f"--devices {','.join(found)}; what torch needs for a card: potluck doctor",
        )
    return own


def _failure(script: Path, texts: dict[int, str], num_processes: int) -> MeetingError:
    """The error of the rank that failed first, but not because of another one."""
    causes = [rank for rank, text in texts.items() if not tells_of_lost_peer(text)]
    rank = next(iter(causes or texts))
    known = [f"{one.cause}: {fix_of_plain(one.fix)}" for one in explain(texts[rank])]
    said = f":\n{texts[rank]}" if rank else f": {texts[rank].splitlines()[-1]}; what it said is above"
    where = f" in rank {rank}" if num_processes > 1 else ""
    fix = f"look for the cause in {quote(script)}, then type the command again"
    return MeetingError(f"{script.name} failed{where}{said}", fix="; ".join(known) or fix)
