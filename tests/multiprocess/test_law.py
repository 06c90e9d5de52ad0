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
    parts = train_in_parts(tmp_path, alone, [{"share": share} for share in split])
    assert all([size[1] for size in sizes] == list(split) for sizes in parts)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("policy", ["static", "proportional", "dynamic"])
def test_any_policy_matches_one_process(tmp_path, alone, policy):
    """One worker becomes as slow as three and recovers, so that plans change on the way."""
    slow = [{"policy": policy, "pauses": [0.0] * 5 + [0.03] * 8}, {"policy": policy}, {"policy": policy}]
    parts = train_in_parts(tmp_path, alone, slow)
    splits = [{tuple(size[step] for size in sizes) for step in range(1, 22) if step % 7} for sizes in parts]
    if policy == "static":
        assert all(each <= {(6, 5, 5), (5, 5, 6)} for each in splits)
    if policy == "dynamic":
        assert max(map(len, splits)) > 1


def train_in_parts(folder, alone, crew):
    """Train every case with these workers, check all that any split must give, and return who took how much when."""
    with lighthouses(len(CASES)) as addresses:
        workers = []
        for worker, wish in enumerate(crew):
            name = f"worker{worker}"
            place = {"share": wish.get("share"), "expected": len(crew)}
            scenarios = [
                {
                    **case,
                    "run": f"case{number}",
                    "result": str(folder / name / f"case{number}.pt"),
                    "environment": environment(addresses[number], worker, **place),
                    "options": {
                        **case["options"],
                        "load_balance_policy": wish.get("policy", "dynamic"),
                        "keep": [f"machine{other}" for other in range(len(crew))],
                    },
                    "pauses": wish.get("pauses", []),
                }
                for number, case in enumerate(CASES)
            ]
            workers.append(Worker(folder, name, scenarios))
        outputs = finish(workers)
    assert not any(word in "".join(outputs) for word in ("torchft", "Gloo", "Warning", "INFO"))
    parts = []
    for number in range(len(CASES)):
        wanted = result(alone, "one", f"case{number}")
        found = [result(folder, f"worker{worker}", f"case{number}") for worker in range(len(crew))]
        assert wanted["step"] == found[0]["step"] == 21
        assert largest_difference(wanted, found[0]) < 1e-10
        assert found[0]["scores"] == pytest.approx(wanted["scores"], abs=1e-12)
        for other in found[1:]:
            assert largest_difference(found[0], other) == 0
        sizes = [{event.step: event.own_samples for event in worker.committed(f"case{number}")} for worker in workers]
        assert all(sum(size[step] for size in sizes) == (16 if step % 7 else 4) for step in range(1, 22))
        parts.append(sizes)
    return parts
