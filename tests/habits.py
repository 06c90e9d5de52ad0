"""Training loops as people write them in plain PyTorch, with Potluck's few lines added."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

import potluck
from tests.training import NUM_FEATURES, make_data, make_mlp, make_optimizer

NUM_NOISE = 4
BATCH = 16


class Numbered(IterableDataset):
    """A stream of samples, with or without a length."""

    def __init__(self, data, *, has_length=True):
        self.data = data
        if has_length:
            self.__class__ = type("NumberedWithLength", (Numbered,), {"__len__": lambda self: len(self.data)})

    def __iter__(self):
        for index in range(len(self.data)):
            yield self.data[index]


def make_gan():
    torch.manual_seed(11)
    generator = nn.Sequential(nn.Linear(NUM_NOISE, 8), nn.Tanh(), nn.Linear(8, NUM_FEATURES)).double()
    critic = nn.Sequential(nn.Linear(NUM_FEATURES, 8), nn.LeakyReLU(), nn.Linear(8, 1)).double()
    return generator, critic


def noise_for(inputs):
    """Noise that belongs to the sample, not to the worker that has it."""
    return inputs[:, :NUM_NOISE].sin()


def critic_losses(critic, real, fake):
    ones, zeros = torch.ones(len(real), 1).to(real), torch.zeros(len(real), 1).to(real)
    score = nn.functional.binary_cross_entropy_with_logits
    return score(critic(real), ones), score(critic(fake.detach()), zeros)


def generator_loss(critic, fake):
    ones = torch.ones(len(fake), 1).to(fake)
    return nn.functional.binary_cross_entropy_with_logits(critic(fake), ones)


def gan(run, *, pause_s=0.0, epochs=2, **_):
    """Two models, two optimizers, two schedules; the critic has two backward passes, the generator's step is later."""
    generator, critic = make_gan()
    for_critic = torch.optim.Adam(critic.parameters(), lr=0.01)
    for_generator = torch.optim.SGD(generator.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(for_generator, step_size=3, gamma=0.9)
    models = [generator, critic]
    # In an order that nobody expects, and in two calls.
    for_critic, critic, schedule = run.prepare(for_critic, critic, schedule)
    generator, for_generator = run.prepare(generator, for_generator)
    loader = run.loader(make_data(100), global_batch=BATCH)
    for _ in run.epochs(epochs):
        for real, _ in loader:
            fake = generator(noise_for(real))
            for_critic.zero_grad()
            for loss in critic_losses(critic, real, fake):
                run.backward(loss)
            run.clip_gradients(0.5, critic.parameters())
            for_critic.step()
            for_generator.zero_grad()
            run.backward(generator_loss(critic, fake))
            for_generator.step()
            schedule.step()
            time.sleep(pause_s)
    return models


def plain_gan(order, epochs=2):
    """The same without Potluck."""
    generator, critic = make_gan()
    for_critic = torch.optim.Adam(critic.parameters(), lr=0.01)
    for_generator = torch.optim.SGD(generator.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(for_generator, step_size=3, gamma=0.9)
    data = make_data(100)
    for step in range(epochs * order.steps_per_epoch):
        from tests.training import whole

        real, _ = data[order.indices(whole(order, step))]
        fake = generator(noise_for(real))
        for_critic.zero_grad()
        for loss in critic_losses(critic, real, fake):
            loss.backward()
        nn.utils.clip_grad_norm_(critic.parameters(), 0.5)
        for_critic.step()
        for_generator.zero_grad()
        generator_loss(critic, fake).backward()
        for_generator.step()
        schedule.step()
    return [generator, critic]


def _classify(run, loader, model, optimizer, *, epochs=2, leave_after=None, reduction="mean", clears=True, clip=None):
    """The usual loop; returns which epochs it saw."""
    seen = []
    for epoch in run.epochs(epochs):
        seen.append(epoch)
        for number, (inputs, targets) in enumerate(loader):
            run.backward(nn.functional.cross_entropy(model(inputs), targets, reduction=reduction))
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            if clears:
                optimizer.zero_grad()
            if leave_after is not None and number + 1 >= leave_after:
                break
    return seen


def two_optimizers_for_one_model(run, **_):
    model = make_mlp()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.AdamW(model[3].parameters(), lr=0.01)
    prepared, first, second = run.prepare(model, first, second)
    for _ in run.epochs(2):
        for inputs, targets in run.loader(make_data(100), global_batch=BATCH):
            run.backward(nn.functional.cross_entropy(prepared(inputs), targets))
            first.step()
            second.step()
            first.zero_grad()
            second.zero_grad()
    return [model]


def leaving_the_loop_early(run, *, leave_after=3, epochs=3, **_):
    model = make_mlp()
    prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))
    loader = run.loader(make_data(100), global_batch=BATCH, num_workers=1)
    assert _classify(run, loader, prepared, optimizer, epochs=epochs, leave_after=leave_after) == list(range(epochs))
    return [model]


def one_loss_a_sample(run, **_):
    model = make_mlp()
    prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))
    loader = run.loader(make_data(100), batch_size=BATCH, shuffle=True)
    _classify(run, loader, prepared, optimizer, reduction="none")
    return [model]


def a_loader_handed_over(run, **_):
    model = make_mlp()
    loader = DataLoader(make_data(100), batch_size=BATCH, shuffle=False, drop_last=True, num_workers=1)
    loader, prepared, optimizer = run.prepare(loader, model, make_optimizer("sgd", model))
    _classify(run, loader, prepared, optimizer)
    return [model]


def a_weighted_sampler(run, **_):
    model = make_mlp()
    sampler = WeightedRandomSampler(torch.linspace(0.1, 1, 100).tolist(), 60)
    loader = run.loader(DataLoader(make_data(100), batch_size=BATCH, sampler=sampler))
    prepared = run.prepare(model)
    optimizer = run.prepare(make_optimizer("sgd", prepared))
    _classify(run, loader, prepared, optimizer)
    return [model]


def a_stream(run, **_):
    model = make_mlp()
    prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))
    loader = run.loader(Numbered(make_data(100), has_length=False), global_batch=BATCH, num_samples=90)
    _classify(run, loader, prepared, optimizer)
    return [model]


def forgetting_zero_grad(run, **_):
    model = make_mlp()
    prepared, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.001))
    _classify(run, run.loader(make_data(100), global_batch=BATCH), prepared, optimizer, clears=False)
    return [model]


def clipping_by_hand(run, **_):
    model = make_mlp()
    prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))
    _classify(run, run.loader(make_data(100), global_batch=BATCH), prepared, optimizer, clip=0.05)
    return [model]


HABITS = {
    habit.__name__: habit
    for habit in (
        gan,
        two_optimizers_for_one_model,
        leaving_the_loop_early,
        one_loss_a_sample,
        a_loader_handed_over,
        a_weighted_sampler,
        a_stream,
        forgetting_zero_grad,
        clipping_by_hand,
    )
}


def train_by_habit(name, run_name, *, seed=5, device="cpu", options=None, **wishes):
    """Train as that habit does; returns the parameters of all models, and the last step."""
    with potluck.start(run_name, device=device, seed=seed, **(options or {})) as run:
        models = HABITS[name](run, **wishes)
    return [parameter.detach().to("cpu", copy=True) for model in models for parameter in model.parameters()], run.step


__all__ = ["HABITS", "TensorDataset", "plain_gan", "train_by_habit"]
