"""Ctrl-C: after the step, saved, with the line to type next."""

import signal

import torch

from tests.multiprocess.command import SMALL, finish, potluck, wait_for_step

LONG = [*SMALL, "--epochs", 3]


def test_ctrl_c_stops_in_order_and_the_run_goes_on_later(workplace):
    undisturbed = potluck("train", *LONG, "--experiment-name", "undisturbed")
    finish(undisturbed)
    process = potluck("train", *LONG, "--experiment-name", "stopped")
    wait_for_step("stopped", 3, process)
    process.send_signal(signal.SIGINT)
    output = finish(process)
    assert process.returncode == 128 + signal.SIGINT, output
    assert "stopped after step" in output
    assert "potluck train --resume --experiment-name stopped" in output
    assert "Traceback" not in output
    again = potluck("train", "--resume")
    output = finish(again)
    assert again.returncode == 0, output
    assert "57 of 57" in output
    states = [
        torch.load(f"experiments/{run}/checkpoints/model_epoch_3.pth", weights_only=True)["model"]
        for run in ("stopped", "undisturbed")
    ]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_two_processes_cannot_train_one_run(workplace):
    first = potluck("train", *LONG, "--epochs", 100, "--experiment-name", "one")
    wait_for_step("one", 1, first)
    second = potluck("train", "--resume", "--experiment-name", "one")
    output = finish(second)
    assert second.returncode == 1
    assert "another process is training this run" in output
    first.send_signal(signal.SIGTERM)
    assert "stopped after step" in finish(first)
    assert first.returncode == 128 + signal.SIGTERM
