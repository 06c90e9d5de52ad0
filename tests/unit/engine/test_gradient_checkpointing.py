import pytest
import torch
from torch import nn

import potluck
from potluck.core.errors import UsageError
from potluck.engine.compute.gradient_checkpointing import checkpoint_blocks, find_blocks


def make_model():
    torch.manual_seed(0)

    def block():
        return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2))

    return nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.Sequential(block(), block()), nn.Flatten(), nn.Linear(4 * 64, 2)
    ).double()


def backward(model):
    torch.manual_seed(1)
    loss = model(torch.randn(5, 3, 8, 8, dtype=torch.float64)).square().mean()
    loss.backward()
    return loss


def test_gradients_and_statistics_are_those_of_the_ordinary_model():
    plain, checkpointed = make_model(), make_model()
    assert checkpoint_blocks(checkpointed) == 1
    for _ in range(3):  # statistics and gradients add up over several passes
        assert torch.equal(backward(plain), backward(checkpointed))
    for mine, theirs in zip(plain.parameters(), checkpointed.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, rtol=0, atol=1e-12)
    for (name, mine), (_, theirs) in zip(plain.named_buffers(), checkpointed.named_buffers(), strict=True):
        assert torch.equal(mine, theirs), name


def test_blocks_run_twice():
    model = make_model()
    calls = []
    [block] = find_blocks(model)
    block[0][0].register_forward_hook(lambda *_: calls.append(1))
    checkpoint_blocks(model)
    backward(model)
    assert len(calls) == 2  # once forward, once again in backward


def test_blocks_are_the_outermost_composite_parts():
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    encoder = nn.TransformerEncoder(layer, num_layers=3, enable_nested_tensor=False)
    assert len(list(find_blocks(encoder))) == 3


def test_a_model_without_blocks_is_told(workplace):
    model = nn.Linear(2, 2)
    with (
        potluck.start("a", device="cpu", gradient_checkpointing=True) as run,
        pytest.raises(UsageError, match="no block in Linear"),
    ):
        run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
