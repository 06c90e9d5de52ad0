"""What a script prints on several machines."""

from io import StringIO

from rich.console import Console

from potluck.cli.display import TrainingDisplay
from potluck.cli.script_output import ScriptOutput


def run(**devices):
    return {
        "workers": {
            machine: [{"number": number, "device": device} for number, device in of.items()]
            for machine, of in devices.items()
        }
    }


def test_a_line_for_all_is_shown_once_and_not_again_from_the_log():
    said = []
    output = ScriptOutput(said.append)
    output.show_once("epoch 1: 0.8")
    output.show_log("logs/fern-1.start-1.out.log", "epoch 1: 0.8\nmine\n", run(fern={1: "cpu"}))
    assert said == ["epoch 1: 0.8", "fern: mine"]
    output.show_log("logs/fern-1.start-1.out.log", "epoch 1: 0.8\n", run(fern={1: "cpu"}))
    assert said[-1] == "fern: epoch 1: 0.8"  # printed twice, for all only once


def test_a_machine_with_two_workers_is_told_with_the_device():
    said = []
    output = ScriptOutput(said.append)
    output.show_log("logs/the-attic-3.start-1.out.log", "mine\n", run(**{"the-attic": {2: "cuda:0", 3: "cuda:1"}}))
    assert said == ["the-attic (cuda:1): mine"]


def test_shares_stand_below_the_bar_and_in_a_pipe_on_a_line_of_their_own():
    piped = StringIO()
    display = TrainingDisplay(Console(file=piped))
    for _ in range(3):
        display.show_machines("shares: rosa 75 %, lily 25 %")
    assert piped.getvalue() == "shares: rosa 75 %, lily 25 %\n"
    seen = StringIO()
    display = TrainingDisplay(Console(file=seen, force_terminal=True, width=80))
    display.show_machines("shares: rosa 75 %, lily 25 %")
    assert display._progress is not None
    with display._progress:
        pass
    assert "shares: rosa 75 %, lily 25 %" in seen.getvalue()
