"""Law: any split over any workers gives the parameters that one process gives."""

import pytest

from tests.multiprocess.crew import Worker, environment, finish, largest_difference, lighthouses, result

SPLITS = [(16,), (13, 3), (1, 15), (5, 5, 6), (8, 4, 3, 1), (15, 0, 1)]
CASES = [
    {"model": model, "optimizer": optimizer, "options": {"micro_batch": cap}, "clip": clip}
    for model, optimizer, cap, clip in [
        ("mlp", "sgd", None, None),
        ("mlp", "adamw", 3, None),
        ("transformer", "sgd", 4, 0.5),
        ("transformer", "adamw", None, None),
    ]
]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process computes, for each case; 100 samples in batches of 16: the last of an epoch has 4."""
    folder = tmp_path_factory.mktemp("alone")
    scenarios = [
        {**case, "options": {}, "run": f"case{number}", "result": str(folder / "one" / f"case{number}.pt")}
        for number, case in enumerate(CASES)
    ]
    finish([Worker(folder, "one", scenarios)])
    return folder


@pytest.mark.timeout(200)
@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_any_split_matches_one_process(tmp_path, alone, split):
    with lighthouses(len(CASES)) as addresses:
        workers = []
        for worker, share in enumerate(split):
            name = f"worker{worker}"
            scenarios = [
                {
                    **case,
                    "run": f"case{number}",
                    "result": str(tmp_path / name / f"case{number}.pt"),
                    "environment": environment(addresses[number], worker, share=share, expected=len(split)),
                }
                for number, case in enumerate(CASES)
            ]
            workers.append(Worker(tmp_path, name, scenarios))
        outputs = finish(workers)
    assert not any(word in "".join(outputs) for word in ("torchft", "Gloo", "Warning", "INFO"))
    for number in range(len(CASES)):
        wanted = result(alone, "one", f"case{number}")
        found = [result(tmp_path, f"worker{worker}", f"case{number}") for worker in range(len(split))]
        assert wanted["step"] == found[0]["step"] == 21
        assert largest_difference(wanted, found[0]) < 1e-10
        assert found[0]["scores"] == pytest.approx(wanted["scores"], abs=1e-12)
        for other in found[1:]:
            assert largest_difference(found[0], other) == 0
        sizes = [{event.step: event.own_samples for event in worker.committed(f"case{number}")} for worker in workers]
        assert [size[1] for size in sizes] == list(split)
        assert all(sum(size[step] for size in sizes) == (16 if step % 7 else 4) for step in range(1, 22))
