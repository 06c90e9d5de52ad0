"""Links between real processes, measured with Gloo itself."""

import json

import pytest
import torch
from torch.distributed import ProcessGroupGloo, TCPStore

from potluck.core.errors import MeasureError
from potluck.measuring.link_sweep import SIZES, fit_link, sweep_links
from tests.multiprocess import forked

NAMES = ["rosa", "lily", "fern"]


def measure(port, rank):
    torch.set_num_threads(1)
    device = ProcessGroupGloo.create_device(hostname="127.0.0.1")
    found = sweep_links(TCPStore("127.0.0.1", port, is_master=False), rank, NAMES, device)
    rates = {"-".join(pair): link.bandwidth_bytes_per_s for pair, link in found.pairs.items()}
    print(json.dumps({"ring": [found.ring.latency_s, found.ring.bandwidth_bytes_per_s], "pairs": rates}))


def test_every_pair_and_the_ring_are_measured_and_all_agree(workplace):
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    outputs = [workplace / f"{name}.txt" for name in NAMES]
    crew = [
        forked.start(measure, [store.port, rank], output=output, variables={}) for rank, output in enumerate(outputs)
    ]
    for process in crew:
        process.join(60)
    assert [process.exitcode for process in crew] == [0, 0, 0], [output.read_text() for output in outputs]
    results = [json.loads(output.read_text().splitlines()[-1]) for output in outputs]
    assert results[0] == results[1] == results[2]
    assert sorted(results[0]["pairs"]) == ["lily-fern", "rosa-fern", "rosa-lily"]
    latency_s, bandwidth = results[0]["ring"]
    assert 1e-6 < latency_s < 0.1
    assert min(bandwidth, *results[0]["pairs"].values()) > 1e6


@pytest.mark.parametrize("num_workers", [2, 5])
@pytest.mark.parametrize(("latency_s", "bandwidth"), [(1e-4, 1.25e8), (5e-3, 2.5e6), (2e-5, 1.25e9)])
def test_latency_and_bandwidth_are_told_apart(num_workers, latency_s, bandwidth):
    hops = 2 * (num_workers - 1)
    seconds = [hops * latency_s + hops / num_workers * size / bandwidth for size in SIZES]
    link = fit_link(num_workers, seconds)
    assert link.latency_s == pytest.approx(latency_s, rel=0.05)
    assert link.bandwidth_bytes_per_s == pytest.approx(bandwidth, rel=0.05)


def test_one_machine_has_no_link():
    with pytest.raises(MeasureError):
        sweep_links(None, 0, ["rosa"], None)
