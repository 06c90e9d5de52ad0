from potluck.meeting.access.proof import LIFETIME_S, Challenges, FailureLimit, prove_back, prove_join


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_challenge_works_once_and_not_for_ever():
    clock = Clock()
    challenges = Challenges(clock)
    first, second, late = challenges.new(), challenges.new(), challenges.new()
    assert challenges.use(first)
    assert not challenges.use(first)
    assert not challenges.use(first.upper())
    assert challenges.use(second)
    clock.now += LIFETIME_S + 1
    assert not challenges.use(late)
    assert not challenges.use(first)


def test_a_challenge_of_another_host_or_before_a_restart_is_void():
    assert not Challenges().use(Challenges().new())


def test_an_altered_challenge_is_void():
    challenges = Challenges()
    challenge = challenges.new()
    for wrong in ("", "zz", challenge[:-2], challenge + "00", "00" + challenge[2:]):
        assert not challenges.use(wrong)
    assert challenges.use(challenge)


def test_unanswered_challenges_take_no_memory():
    challenges = Challenges()
    for _ in range(1000):
        challenges.new()
    assert not challenges._used


def test_a_proof_is_of_one_token_challenge_host_and_body():
    proof = prove_join(b"t" * 16, "c", b"f" * 16, b"body")
    assert proof == prove_join(b"t" * 16, "c", b"f" * 16, b"body")
    others = [
        prove_join(b"u" * 16, "c", b"f" * 16, b"body"),
        prove_join(b"t" * 16, "d", b"f" * 16, b"body"),
        prove_join(b"t" * 16, "c", b"g" * 16, b"body"),
        prove_join(b"t" * 16, "c", b"f" * 16, b"BODY"),
        prove_back(b"t" * 16, "c", b"f" * 16),
    ]
    assert proof not in others
    assert len(set(others)) == len(others)


def test_an_address_with_many_wrong_answers_has_to_wait_and_others_do_not():
    clock = Clock()
    limit = FailureLimit(most=3, within_s=60, clock=clock)
    for _ in range(3):
        assert limit.wait_s("10.0.0.1") == 0
        limit.failed("10.0.0.1")
        clock.now += 1
    assert limit.wait_s("10.0.0.1") == 57
    assert limit.wait_s("10.0.0.2") == 0
    clock.now += 57
    assert limit.wait_s("10.0.0.1") == 0


def test_a_flood_of_addresses_does_not_fill_the_memory():
    limit = FailureLimit(addresses=10)
    for number in range(100):
        limit.failed(f"10.0.0.{number}")
    assert len(limit._failures) == 10
