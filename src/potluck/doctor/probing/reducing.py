"""One machine's part of the all-reduce: a process with torch, which may hang or crash, and its end."""

import json
import sys

import msgspec

from potluck.doctor.case import Reduction
from potluck.doctor.explain import explain
from potluck.doctor.probing.asks import Reduce
from potluck.machine.asking import NoAnswerError, ask

WORKER = "potluck.engine.all_reduce_probe"
_IMPORT_S = 20.0


def reduce_in_subprocess(wanted: Reduce) -> Reduction:
    """Run it; an error is the last line that the process printed, with its known cause."""
    command = [sys.executable, "-m", WORKER, msgspec.json.encode(wanted).decode()]
    try:
        told = json.loads(ask(command, timeout_s=wanted.timeout_s + _IMPORT_S).strip().splitlines()[-1])
    except NoAnswerError as error:
        known = explain(str(error))
        return Reduction(machine=wanted.machine, error=known[0].cause if known else str(error).partition(": ")[2])
    except (ValueError, IndexError):
        return Reduction(machine=wanted.machine, error="the process ended without a result")
    return msgspec.convert({"machine": wanted.machine, **told}, Reduction, strict=False)
