"""A plain PyTorch training script with five Potluck lines, marked by comments: python examples/own_script.py."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import potluck

generator = torch.Generator().manual_seed(0)
inputs = torch.randn(4000, 20, generator=generator)
targets = inputs[:, :5].argmax(1)  # which of the first five numbers is the largest
train_set, test_set = TensorDataset(inputs[:3200], targets[:3200]), TensorDataset(inputs[3200:], targets[3200:])

torch.manual_seed(0)
model: nn.Module = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loss_function = nn.CrossEntropyLoss()

run = potluck.start()  # 1
model, optimizer = run.prepare(model, optimizer)  # 2
loader = run.loader(train_set, global_batch=64)  # 3
for epoch in run.epochs(5):  # 4
    for batch, wanted in loader:
        loss = loss_function(model(batch), wanted)
        run.backward(loss)  # 5
        optimizer.step()
        optimizer.zero_grad()
    scores = run.evaluate(test_set, lambda batch, wanted: {"accuracy": model(batch).argmax(1) == wanted})
    run.print(f"epoch {epoch + 1}: held-out accuracy {scores['accuracy']:.3f}")
