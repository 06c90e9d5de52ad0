"""A worker with little memory among others that have enough: it finds its cap, says so, and the run goes on."""

import socket

import pytest
import torch

from potluck.cli import main
from potluck.core.run_folder import RunFolder
from potluck.events.log import read_records
from potluck.events.types import Notice, StepCommitted
from potluck.report.account_file import NAME
from tests.multiprocess import forked

TRAIN = ["train", "--model-size", "tiny", "--num-samples", "480", "--global-batch", "96", "--epochs", "2"]


def run_command(arguments):
    import sys

    torch.set_num_threads(1)
    sys.argv = ["potluck", *arguments]
    main()


def train_together(folder, limits):
    """One worker for each limit, None for no limit, as a launcher would start them; what each printed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    processes = []
    for rank, limit in enumerate(limits):
        variables = {
            "RANK": str(rank),
            "WORLD_SIZE": str(len(limits)),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "POTLUCK_NAME": f"machine{rank}",
            "POTLUCK_HOME": str(folder / f"home{rank}"),
            "POTLUCK_RUNS_DIR": str(folder / "experiments"),
        }
        arguments = [*TRAIN, "--experiment-name", "run", *(["--memory-limit", limit] if limit else [])]
        output = folder / f"output{rank}.txt"
        processes.append((forked.start(run_command, [arguments], output=output, variables=variables), output))
    for process, _ in processes:
        process.join(90)
    outputs = [output.read_text() for _, output in processes]
    assert [process.exitcode for process, _ in processes] == [0] * len(limits), "\n---\n".join(outputs)
    for process, _ in processes:
        process.close()
    return outputs


@pytest.mark.timeout(120)
def test_a_worker_with_a_fake_memory_limit_finds_its_cap_and_the_run_finishes(workplace):
    outputs = train_together(workplace, [None, "1M"])
    folder = RunFolder(workplace / "experiments" / "run")
    records = {file.stem: list(read_records(file)) for file in folder.event_files()}
    notices = [record.event.text for record in records["machine1-1"] if isinstance(record.event, Notice)]
    (told,) = (text for text in notices if "at once" in text)
    assert told.startswith("machine1 takes at most 1 sample at once: more do not fit into its memory")
    assert not [record for record in records["machine0-0"] if "at once" in str(record.event)]
    steps = {name: [r.event for r in lines if isinstance(r.event, StepCommitted)] for name, lines in records.items()}
    assert [event.step for event in steps["machine0-0"]] == list(range(1, 11))
    taken = [sum(event.own_samples for event in both) for both in zip(*steps.values(), strict=True)]
    assert taken == [96] * 10
    assert max(event.own_samples for event in steps["machine1-1"]) > 1  # in several pieces
    assert "that others lost by waiting for it" in outputs[0]
    assert (folder.path / NAME).is_file()
