"""What membership costs a simulated run: the seconds of a change of the group, by its size.

A lost worker is noticed after a second without heartbeats; then a quorum is formed and workers connect to each other. A
quorum took 3 ms with 10 members and 35 ms with 100 (benchmarks.lighthouse, docs/scale.md). The time to connect is an
assumption: it makes a loss among three machines cost what lab runs showed, and grows with the number of peers.
"""

NOTICED_S = 1.0  # the lighthouse misses a heartbeat
_QUORUM_S, _QUORUM_S_PER_WORKER = 0.003, 0.00035
_CONNECT_S, _CONNECT_S_PER_WORKER = 0.1, 0.002
STATE_COPIES = 3  # a joining worker takes parameters and two states of the optimizer for each
COMMIT_S = 0.0005


def forming_s(num_workers: int) -> float:
    """A quorum of that many workers, and their connections."""
    if num_workers < 2:
        return _QUORUM_S
    return _QUORUM_S + _CONNECT_S + (_QUORUM_S_PER_WORKER + _CONNECT_S_PER_WORKER) * num_workers


def loss_s(num_left: int) -> float:
    """What the others lose when a worker is lost, beside the step that is done again."""
    return NOTICED_S + forming_s(num_left)


def join_s(num_workers: int, gradient_bytes: int, bytes_per_s: float) -> float:
    """What the others lose when a worker comes: it takes their state before its first part counts."""
    return forming_s(num_workers) + STATE_COPIES * gradient_bytes / bytes_per_s
