"""Processes forked from a server that has imported torch once: each is a process of its own, and starts at once."""

import multiprocessing
import os
import signal
import sys
from multiprocessing import forkserver
from pathlib import Path

PROCESSES = multiprocessing.get_context("forkserver")


def _start_server():
    """Start the server unless it runs, where it finds what it is to import: it says nothing when it doesn't."""
    PROCESSES.set_forkserver_preload(["tests.multiprocess.preloaded"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), *([before] if before else [])])
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


def start(target, arguments, *, output, variables):
    """Start target(*arguments) in this folder, with these variables, printing into a file."""
    _start_server()
    process = PROCESSES.Process(target=_live, args=(target, arguments, str(Path.cwd()), str(output), variables))
    process.start()
    return process


def _live(target, arguments, folder, output, variables):
    with open(output, "a") as file:  # noqa: PTH123
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w", buffering=1) for number in (1, 2))
    sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the server ignores it
    os.chdir(folder)
    os.environ.update(variables)
    target(*arguments)
