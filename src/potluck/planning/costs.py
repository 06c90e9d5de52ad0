"""What a step costs: a worker's own work by its share, and the exchange of gradients by the machines in the ring."""

from dataclasses import dataclass, replace
from itertools import pairwise

from potluck.core.errors import PlanError
from potluck.planning.codes import EXACT, Code


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeProfile:
    """How one worker's own work grows with its share: seconds = ceil(b / memory_cap) * fixed + per_sample * b.

    Own work is all that a worker does between two exchanges without waiting for other workers.
    """

    fixed_s: float
    per_sample_s: float
    memory_cap: int | None = None
    """The largest micro-batch that fits; None if no limit was found."""
    error: float = 0.0
    """The relative standard error of a prediction."""
    curve: tuple[tuple[int, float], ...] = ()
    """Measured (samples, seconds) of one micro-batch where a line fits badly; after the last, per_sample_s holds."""
    spread: float = 0.0
    """The relative standard deviation of a single step's own work around its usual time; 0 if it is not known."""

    def __post_init__(self) -> None:
        points = [(0, self.fixed_s), *self.curve]
        rises = all(x < later_x and y < later_y for (x, y), (later_x, later_y) in pairwise(points))
        fits = self.memory_cap is None or self.memory_cap >= 1
        is_known = self.error >= 0 and self.spread >= 0
        if not (self.fixed_s >= 0 and self.per_sample_s > 0 and rises and fits and is_known):
            raise PlanError(f"{self} is not a cost that grows with samples", fix="measure again: potluck profile")

    def seconds(self, samples: int) -> float:
        """Seconds of the worker's own work for that many samples."""
        if self.memory_cap is None:
            return self._one_micro_batch(samples)
        whole, rest = divmod(samples, self.memory_cap)
        return whole * self._one_micro_batch(self.memory_cap) + self._one_micro_batch(rest)

    def solo_speed(self, most: int) -> float:
        """Samples/s of the worker alone, at its best batch size up to `most`."""
        sizes = {most, *(samples for samples, _ in self.curve)}
        if self.memory_cap is not None:
            sizes |= {self.memory_cap, most // self.memory_cap * self.memory_cap}
        return max(size / self.seconds(size) for size in sizes if 1 <= size <= most)

    def slowed(self, factor: float) -> "ComputeProfile":
        """The same profile with all times multiplied by the factor."""
        return replace(
            self,
            fixed_s=self.fixed_s * factor,
            per_sample_s=self.per_sample_s * factor,
            curve=tuple((samples, seconds * factor) for samples, seconds in self.curve),
        )

    def near(self, samples: int, num_bends: int) -> "ComputeProfile":
        """The same profile with at most `num_bends` points of its curve, those around this many samples."""
        if len(self.curve) <= num_bends:
            return self
        at = min(samples, self.memory_cap or samples)
        points = [(0, self.fixed_s), *self.curve]
        nearest = min(range(1, len(points)), key=lambda index: max(points[index][0] / at, at / points[index][0]))
        first = max(1, min(nearest - num_bends // 2, len(points) - num_bends))
        kept, after = points[first : first + num_bends], points[first + num_bends :]
        begins_s = kept[0][1] - _slope(points[first - 1], kept[0]) * kept[0][0]
        return replace(
            self,
            fixed_s=max(0.0, begins_s),
            per_sample_s=_slope(kept[-1], after[0]) if after else self.per_sample_s,
            curve=tuple(kept),
        )

    def _one_micro_batch(self, samples: int) -> float:
        if samples == 0:
            return 0.0
        before, after = (0, self.fixed_s), None
        for point in self.curve:
            if point[0] > samples:
                after = point
                break
            before = point
        slope = self.per_sample_s if after is None else _slope(before, after)
        return before[1] + slope * (samples - before[0])


def _slope(before: tuple[int, float], after: tuple[int, float]) -> float:
    return (after[1] - before[1]) / (after[0] - before[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProfile:
    """A machine's network link to the other machines."""

    latency_s: float
    bandwidth_bytes_per_s: float
    error: float = 0.0
    is_measured: bool = True
    """False if the link is only inferred from the exchange that a run measured."""

    def __post_init__(self) -> None:
        if not (self.latency_s >= 0 and self.bandwidth_bytes_per_s > 0):
            raise PlanError(f"{self} is not a link", fix="measure it again, or name it with --link NAME=100mbit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What workers send in every step, and how much of that time overlaps with their own work."""

    num_bytes: int
    """Bytes of the gradients in fp32, before a code makes them fewer."""
    num_messages: int = 1
    """Each message, for example a bucket of gradients, pays the latency."""
    overlap: float = 0.0
    """Seconds of exchange that overlap with each second of the slowest worker's work, 0 to 1."""
    stretch: float = 1.0
    """Measured seconds, divided by the seconds of the formula."""
    code: Code = EXACT

    def wire_bytes(self, num_workers: int) -> float:
        """Bytes that each worker sends for one exchange: 2(n-1)/n * bytes of the coded gradients."""
        return 2 * (num_workers - 1) / num_workers * self.num_bytes * self.code.wire_part

    def wire_s(
        self, num_workers: int, latency_s: float, bandwidth_bytes_per_s: float, coding_factor: float = 1.0
    ) -> float:
        """2(n-1) * latency for each message + 2(n-1)/n * bytes / bandwidth of the slowest link in the ring + coding.

        `coding_factor`: how much longer coding takes on the slowest machine than the code says.
        """
        hops = 2 * (num_workers - 1)
        sending_s = self.code.wire_stretch * self.wire_bytes(num_workers) / bandwidth_bytes_per_s
        coding_s = self.num_bytes * self.code.coding_s_per_byte * coding_factor
        return self.stretch * (self.num_messages * hops * latency_s + sending_s) + coding_s

    def exposed_s(self, wire_s: float, work_s: float) -> float:
        """Seconds of exchange that are left when the slowest worker has done its work."""
        return max(0.0, wire_s - self.overlap * work_s)


def bucket_bytes(num_bytes: int, code: str = "exact") -> int:
    """The size of a bucket for gradients of that many bytes: about sixteen buckets, each of 1 to 25 MB, or from 256 KB.

    The exchange of the last bucket cannot overlap with backward. DDP's default of 25 MB suits a datacentre's network: a
    small model would be a single bucket, and on a home network every step would wait for all of its exchange. In a
    code, which is for slow links, buckets may be smaller: there even 256 KB take longer than the latency of messages.
    """
    return min(25 << 20, max(1 << 20 if code == "exact" else 1 << 18, num_bytes // 16))


def calibrate(exchange: Exchange, wire_s: float, work_s: float, exposed_s: float) -> Exchange:
    """The Exchange that fits the measurement of a ring; wire_s is the formula's time for that ring with stretch 1."""
    if wire_s <= 0 or work_s <= 0:
        return exchange
    hidden_s = wire_s - exposed_s
    return replace(
        exchange,
        overlap=min(1.0, max(0.0, hidden_s / work_s)),
        stretch=max(1.0, exposed_s / wire_s),
    )
