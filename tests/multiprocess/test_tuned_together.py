"""Two machines that train tuned: bit for bit the same parameters on both, also where their tunings differ."""

import hashlib
import json
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from potluck.measuring.tuning import Tuning
from potluck.measuring.tuning_store import keep_tuning
from tests.multiprocess.crew import SECRET, lighthouses

LAST = Tuning(channels_last=True, keeps_memory=True, gains={"channels_last": 1.3, "allocator": 1.1})
PLAIN = Tuning()


def main():
    """Train a little CNN with a run of two workers, and print what became of it."""
    import potluck

    generator = torch.Generator().manual_seed(2)
    images = torch.randn(96, 3, 12, 12, generator=generator)
    data = TensorDataset(images, torch.randint(4, (96,), generator=generator))
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 8 * 8, 4)
    )
    with potluck.start(device="cpu", profile_name="pictures") as run:
        prepared, optimizer = run.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
        for _ in run.epochs(4):
            for pictures, wanted in run.loader(data, global_batch=24):
                run.backward(nn.functional.cross_entropy(prepared(pictures), wanted))
                optimizer.step()
                optimizer.zero_grad()
    bits = b"".join(one.detach().contiguous().numpy().tobytes() for one in model.parameters())
    print(json.dumps({"bits": hashlib.sha256(bits).hexdigest(), "last": [p.tolist() for p in model.parameters()][-1]}))


def train(folder, lighthouse, tunings):
    """What each of two machines has at the end, and what they said."""
    processes = []
    for number, (name, tuning) in enumerate(zip(("rosa", "lily"), tunings, strict=True)):
        home = folder / name
        if tuning is not None:
            keep_tuning(home / f"profiles/{name}/cpu+pictures+no.tuning", torch.__version__, tuning)
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "POTLUCK_NAME": name,
            "POTLUCK_HOME": str(home),
            "POTLUCK_RUNS_DIR": str(home / "runs"),
            "POTLUCK_LIGHTHOUSE": lighthouse,
            "POTLUCK_SECRET": SECRET,
            "POTLUCK_RUN": "pictures",
            "POTLUCK_WORKERS": "2",
            "POTLUCK_WORKER": str(number),
            "POTLUCK_KEEP": "rosa,lily",
            "OMP_NUM_THREADS": "1",
            **({"POTLUCK_TUNING": "0"} if tuning is None else {}),
        }
        command = [sys.executable, "-m", "tests.multiprocess.test_tuned_together"]
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    ends = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    return [json.loads(out) for out, _ in ends], [said for _, said in ends]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("tunings", [(LAST, LAST), (LAST, PLAIN)], ids=["equal", "different"])
def test_tuned_machines_have_the_same_bits_and_the_maths_of_untuned_ones(tmp_path, tunings):
    with lighthouses(2) as [first, second]:
        tuned, said = train(tmp_path / "tuned", first, tunings)
        plain, _ = train(tmp_path / "plain", second, (None, None))
    assert "channels_last +30 %" in said[0]
    assert tuned[0]["bits"] == tuned[1]["bits"]
    assert plain[0]["bits"] == plain[1]["bits"]
    torch.testing.assert_close(torch.tensor(tuned[0]["last"]), torch.tensor(plain[0]["last"]), rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    main()
