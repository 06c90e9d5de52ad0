"""A machine whose tuning says torch.compile: the same maths, compiled once, and a way back without a compiler."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from potluck.measuring.tuning import Tuning
from potluck.measuring.tuning_store import keep_tuning

SIZES = (8, 6)  # of the batches of 40 samples: the last of an epoch is smaller


class Tokens(nn.Module):
    """A little text model with dropout."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.table, self.head = nn.Embedding(11, 8), nn.Linear(8, 5)

    def forward(self, tokens):
        features = nn.functional.gelu(self.table(tokens)).mean(dim=1)
        return self.head(nn.functional.dropout(features, 0.5, self.training))


def main():
    """Train a few epochs, and print the parameters and how many graphs were compiled."""
    import potluck

    generator = torch.Generator().manual_seed(2)
    data = TensorDataset(torch.randint(11, (40, 6), generator=generator), torch.randint(5, (40,), generator=generator))
    model = Tokens()
    with potluck.start(device="cpu", profile_name="tokens") as run:
        prepared, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for _ in run.epochs(2):
            for tokens, wanted in run.loader(data, global_batch=int(sys.argv[1])):
                run.backward(nn.functional.cross_entropy(prepared(tokens), wanted))
                optimizer.step()
                optimizer.zero_grad()
        prepared.eval()
        with torch.no_grad():
            prepared(data.tensors[0])
    dynamo = sys.modules.get("torch._dynamo.utils")
    num_graphs = 0 if dynamo is None else dynamo.counters["stats"]["unique_graphs"]
    print(json.dumps({"graphs": num_graphs, "parameters": [p.tolist() for p in model.parameters()]}))


@pytest.fixture
def train(tmp_path):
    """Trains in a process of its own, because what is compiled stays with the process."""
    path = tmp_path / "home/profiles/rosa/cpu+tokens+no.tuning"
    keep_tuning(path, torch.__version__, Tuning(is_compiled=True, gains={"compile": 1.2}))
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "POTLUCK_NAME": "rosa",
        "POTLUCK_HOME": str(tmp_path / "home"),
        "POTLUCK_RUNS_DIR": str(tmp_path / "runs"),
        "OMP_NUM_THREADS": "1",
    }

    def run(global_batch, **more):
        command = [sys.executable, "-m", "tests.multiprocess.test_compiled", str(global_batch)]
        done = subprocess.run(command, env=environment | more, capture_output=True, text=True, timeout=200, check=True)
        return json.loads(done.stdout), done.stderr

    return run


@pytest.mark.timeout(300)
@pytest.mark.parametrize("global_batch", SIZES)
def test_a_compiled_run_has_the_same_maths_and_compiles_once(train, global_batch):
    plain, _ = train(global_batch, POTLUCK_TUNING="0")
    compiled, said = train(global_batch)
    assert "rosa: tuned for this machine: compile +20 %" in said
    assert (plain["graphs"], compiled["graphs"]) == (0, 1)
    for one, other in zip(plain["parameters"], compiled["parameters"], strict=True):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=1e-5, atol=1e-6)


@pytest.mark.timeout(300)
def test_without_a_compiler_training_goes_on(train, tmp_path):
    plain, _ = train(8, POTLUCK_TUNING="0")
    without, said = train(8, CXX="no-such-compiler", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "empty"))
    assert "rosa: compile is off from now on: a pass failed with it: " in said
    assert without["parameters"] == plain["parameters"]
    again, said = train(8, CXX="no-such-compiler")
    assert "compile is off" not in said
    assert again["parameters"] == plain["parameters"]


if __name__ == "__main__":
    main()
