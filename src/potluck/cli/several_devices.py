"""Trains on several devices of this machine: one process each, as torchrun would start them."""

import signal
import socket
import subprocess
import sys
import time

from potluck.core.environment import with_workers_of_one_machine
from potluck.core.errors import SettingsError
from potluck.machine.hardware import quota_threads

_LOOK_EVERY_S = 0.1


def one_device(text: str) -> str | None:
    """The device of a worker that a launcher or RANK has started; None for `--devices 1`: any, by LOCAL_RANK."""
    from potluck.machine.device_list import read_devices

    if text.strip() == "1":
        return None
    devices = read_devices(text)
    if len(devices) > 1:
        raise SettingsError(
            f"--devices {text} names {len(devices)} devices, but RANK is set: this process is one worker on one device",
            fix="start one process for each device, with its own RANK and LOCAL_RANK, or use potluck host and join",
        )
    return devices[0]


def train_on_each(command: list[str], devices: list[str], more: dict[str, str]) -> int:
    """Run `python *command` once for each device, together; the exit code of the first that fails, else 0.

    Signals go on to every worker: Ctrl-C stops all after the step. Without worker 0 the others cannot go on.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    sys.stdout.flush()
    environments = with_workers_of_one_machine(devices, port, more, quota_threads())
    workers: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _: object = None) -> None:
        for worker in workers:
            worker.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        for environment in environments:  # a session of its own: the terminal's Ctrl-C comes once, through pass_on
            process = subprocess.Popen([sys.executable, *command], env=environment, start_new_session=True)  # noqa: S603
            workers.append(process)
        while any(worker.poll() is None for worker in workers):
            if workers[0].returncode:
                pass_on(signal.SIGTERM)
            time.sleep(_LOOK_EVERY_S)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    failed = next((worker.returncode for worker in workers if worker.returncode), 0)
    return 128 - failed if failed < 0 else failed
