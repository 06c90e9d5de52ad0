"""An unchanged DDP script on the lab's laptops by `potluck run --plain`: it trains, stops, and its error comes home."""

import time

import pytest

from benchmarks.support.gathering import Gathering
from benchmarks.support.lab_machines import ROOT, START_CORES, LabMachines

pytestmark = [pytest.mark.needs_lab, pytest.mark.real_world, pytest.mark.timeout(300)]
LAPTOPS = (ROOT / "lab" / "clusters" / "laptops.yaml").read_text()


def test_a_stock_ddp_script_trains_stops_and_fails_once_on_the_laptops(tmp_path):
    with Gathering(tmp_path, LAPTOPS) as gathering:
        machines = LabMachines(gathering.lab)
        gathering.pinned = machines.pinned
        for machine in gathering.lab.machines:
            machine.slow(START_CORES)
        gathering.host().expect("rosa is here", 60)
        gathering.join_all("lily", "fern")
        job = gathering.place("rosa") / "job"
        job.mkdir()
        stock = (ROOT / "examples" / "ddp_script.py").read_text()
        (job / "ddp_script.py").write_text(stock)
        faulty = stock.replace("sampler.set_epoch(epoch)", "sampler.set_epoch(epoch if dist.get_rank() != 2 else None)")
        (job / "faulty.py").write_text(faulty)
        machines.settle()

        short = ["--num-samples", "3072", "--batch-size", "64"]
        code, output = gathering.run("rosa", "run", "--plain", "job/ddp_script.py", *short, timeout_s=120)
        assert code == 0, output
        assert "3 ranks with equal shares, rank 0 on rosa" in output
        losses = [float(line.split("loss ")[1].split(",")[0]) for line in output.splitlines() if ": loss " in line]
        assert len(losses) == 3
        assert losses[-1] < losses[0]
        assert "rosa has what the script wrote: snapshot.pt" in output
        assert (gathering.place("rosa") / "home" / "scripts" / "ddp_script-1" / "snapshot.pt").is_file()
        # The gradients went over the network: more than a float of each of 13,000 parameters, 48 steps.
        rows = {line.split()[0]: line.split() for line in output.splitlines() if line.endswith(" MB")}
        assert set(rows) == {"rosa", "lily", "fern"}
        assert all(float(row[-4].replace(",", "")) > 2 for row in rows.values()), output

        run = gathering.start(
            "lily", "run", "--plain", gathering.place("rosa") / "job" / "ddp_script.py", "--epochs", "99"
        )
        run.expect("epoch 1:", 120)
        asked_at = time.monotonic()
        code, output = gathering.run("fern", "stop")
        assert code == 0, output
        assert run.wait(60) == 130, run.output
        assert time.monotonic() - asked_at < 15, run.output
        assert "ddp_script-2: stopped after" in run.output

        code, output = gathering.run("rosa", "run", "--plain", "job/faulty.py", *short, timeout_s=120)
        assert code == 1
        assert "run faulty-1 failed on fern" in output, output
        assert output.count("Traceback (most recent call last)") == 1
        assert output.count("TypeError") == 1
        assert "onnection" not in output
