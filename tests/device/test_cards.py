"""A run on the stand-in accelerator, with a stub of NVIDIA's library beside it: names, use and power in its report."""

import json

from tests.nvml.building import build

TRAIN_AND_TELL = """
    import json, time
    import torch
    from torch import nn
    import potluck
    from potluck.report.story import tell
    from potluck.report.view import read_run
    from dataclasses import asdict

    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.arange(64) % 3)
    with potluck.start("cards", device="standin:1", enable_profiling=True, quiet=True) as run:
        model = nn.Linear(4, 3)
        model, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for _ in run.epochs(2):
            for inputs, targets in run.loader(data, global_batch=8):
                run.backward(nn.functional.cross_entropy(model(inputs), targets))
                optimizer.step()
                optimizer.zero_grad()
                time.sleep(0.7)  # the load is measured every five seconds
    story = tell(read_run(run.folder))
    print(json.dumps([asdict(story.machines[0]), asdict(story.devices), story.result.get("energy", "")]))
"""


def test_a_run_on_a_card_is_reported_with_its_name_use_and_power(python):
    machine, devices, energy = json.loads(
        python(TRAIN_AND_TELL, LD_LIBRARY_PATH=str(build()), NVML_BUSY="30").splitlines()[-1]
    )
    assert machine["device"] == "Maker Stand-In 1 (2 of 2)"
    (card,) = devices["cards"]
    assert card["card"] == "Maker Stand-In 1 (2 of 2)"
    assert card["busy"] == 0.3
    assert (card["memory_bytes"], card["memory_total_bytes"]) == (512 << 20, 8 << 30)
    assert 80 < card["power_w"] < 100  # of the second card, found by its UUID
    assert "samples per joule" in energy
    (trace,) = devices["traces"]
    assert trace["place"] == card["card"]
    assert trace["operators"]
