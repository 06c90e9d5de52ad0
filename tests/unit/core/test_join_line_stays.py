"""POTLUCK_JOIN, which lets in whoever has it, is not passed on to scripts."""

from potluck.core.environment import plain_solo_variables, with_variables


def test_no_process_that_potluck_starts_inherits_the_join_line(monkeypatch):
    monkeypatch.setenv("POTLUCK_JOIN", "p1-secret")
    monkeypatch.setenv("POTLUCK_NAME", "attic")
    for variables in (with_variables({"A": "1"}), plain_solo_variables({"A": "1"}, ["cpu", "cpu"])):
        assert "POTLUCK_JOIN" not in variables
        assert (variables["A"], variables["POTLUCK_NAME"]) == ("1", "attic")
    assert plain_solo_variables({"OMP_NUM_THREADS": "7"}, ["cpu", "cpu"])["OMP_NUM_THREADS"] == "7"
