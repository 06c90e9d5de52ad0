from hypothesis import given
from hypothesis import strategies as st

from potluck.engine.order.position import DataOrder, Slice, split_into_micro_batches


@given(
    num_samples=st.integers(1, 300),
    global_batch=st.integers(1, 64),
    seed=st.integers(0, 2**31),
    epoch=st.integers(0, 3),
)
def test_every_sample_counts_exactly_once_an_epoch(num_samples, global_batch, seed, epoch):
    order = DataOrder(num_samples, global_batch, seed)
    steps = range(epoch * order.steps_per_epoch, (epoch + 1) * order.steps_per_epoch)
    seen = [index for step in steps for index in order.indices(Slice(step, 0, order.batch_of(step))).tolist()]
    assert sorted(seen) == list(range(num_samples))
    assert all(order.epoch_of(step) == epoch for step in steps)


def test_the_order_is_a_function_of_seed_and_epoch_only():
    one, other = DataOrder(100, 10, seed=1), DataOrder(100, 10, seed=1)
    other.indices(Slice(55, 0, 10))  # reading elsewhere first changes nothing
    assert one.indices(Slice(3, 2, 7)).tolist() == other.indices(Slice(3, 2, 7)).tolist()
    assert one.indices(Slice(3, 0, 10)).tolist() != one.indices(Slice(13, 0, 10)).tolist()
    assert one.indices(Slice(3, 0, 10)).tolist() != DataOrder(100, 10, seed=2).indices(Slice(3, 0, 10)).tolist()


@given(start=st.integers(0, 50), size=st.integers(0, 200), cap=st.none() | st.integers(1, 64))
def test_micro_batches_cover_the_slice_in_order_and_fit(start, size, cap):
    micro_batches = split_into_micro_batches(Slice(4, start, start + size), cap)
    covered = [index for micro_batch in micro_batches for index in range(micro_batch.start, micro_batch.stop)]
    assert covered == list(range(start, start + size))
    sizes = [micro_batch.num_samples for micro_batch in micro_batches]
    assert max(sizes) - min(sizes) <= 1
    assert cap is None or max(sizes) <= cap
    assert len(micro_batches) == (1 if cap is None else max(1, -(-size // cap)))
