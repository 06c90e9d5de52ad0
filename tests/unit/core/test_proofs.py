"""A proof of a secret is good for one purpose and one list of parts."""

from potluck.core.proofs import prove


def test_parts_that_run_together_alike_give_other_proofs():
    given = [("join", b"ab", b"c"), ("join", b"a", b"bc"), ("join", b"abc"), ("join", b"abc", b""), ("host", b"abc")]
    assert len({prove(b"secret", *one) for one in given}) == len(given)
    assert prove(b"secret", "join", b"ab") == prove(b"secret", "join", b"ab") != prove(b"other", "join", b"ab")
