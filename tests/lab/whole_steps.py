"""What all workers of a run committed together, held against its global batch."""


def samples_by_step(records):
    """How many samples of each step's global batch all workers together took, in the quorum that committed it."""
    found = {}
    for record in records:
        event = record.event
        found.setdefault((event.step, event.quorum_id), []).append(event.own_samples)
    return {key: sum(samples) for key, samples in found.items()}


def assert_every_step_is_whole(records, batch, num_breaks=0):
    """Every step was committed, by all workers together with all samples of its global batch.

    Where links or processes break in the middle of an exchange, some workers may have all of its bytes and others not:
    the first commit the step, the others take it over with the first ones' state, and write no event of their own. So
    each break may leave one step in which fewer samples are counted than taken.
    """
    taken = samples_by_step(records)
    steps = {step for step, _ in taken}
    assert steps == set(range(min(steps), max(steps) + 1))
    assert {record.event.samples for record in records} == {batch}
    assert max(taken.values()) == batch
    short = {key: samples for key, samples in taken.items() if samples != batch}
    assert len(short) <= num_breaks, short
