"""Ctrl-C: after the step, saved, with the line to type next."""

import signal

import torch

from tests.multiprocess.command import SMALL, Command

LONG = [*SMALL, "--epochs", 3]


def test_ctrl_c_stops_in_order_and_the_run_goes_on_later(workplace):
    assert Command("train", *LONG, "--experiment-name", "undisturbed").finish()[0] == 0
    stopped = Command("train", *LONG, "--experiment-name", "stopped")
    stopped.wait_for_step("stopped", 3)
    stopped.signal(signal.SIGINT)
    code, output = stopped.finish()
    assert code == 128 + signal.SIGINT, output
    assert "stopped after step" in output
    assert "potluck train --resume --experiment-name stopped" in output
    assert "Traceback" not in output
    code, output = Command("train", "--resume").finish()
    assert code == 0, output
    assert "57 of 57" in output
    states = [
        torch.load(f"experiments/{run}/checkpoints/model_epoch_3.pth", weights_only=True)["model"]
        for run in ("stopped", "undisturbed")
    ]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_two_processes_cannot_train_one_run(workplace):
    first = Command("train", *LONG, "--epochs", 100, "--experiment-name", "one")
    first.wait_for_step("one", 1)
    code, output = Command("train", "--resume", "--experiment-name", "one").finish()
    assert code == 1
    assert "another process is training this run" in output
    first.signal(signal.SIGTERM)
    code, output = first.finish()
    assert "stopped after step" in output
    assert code == 128 + signal.SIGTERM
