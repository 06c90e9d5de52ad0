"""What an agent gives its gate: a promise is among the settings that a gate gets when it starts again."""

from potluck.gates.owner_line import OwnerLine
from potluck.gates.process import GateProcess
from potluck.meeting.agent.own_gate import OwnGate
from potluck.meeting.home import HostMembership
from potluck.meeting.wire import GateOrders

MEMBERSHIP = HostMembership(machine="lily", host="rosa", address="127.0.0.1", port=1, fingerprint="00", credential="c")
ORDERS = GateOrders(block="127.77.1.0", host="rosa", members=[], runs={})


class FakeGate(GateProcess):
    socket = "gate"
    port = 29500

    def __init__(self):
        self.settings = []

    def update(self, settings):
        self.settings.append(settings)


def test_a_new_promise_is_in_the_settings_of_a_gate_that_starts_again():
    gate = FakeGate()
    own = OwnGate(gate, MEMBERSHIP)
    own.keep(None, service="", promised=3)
    assert not gate.settings, "there are no orders yet"
    own.follow(ORDERS, promised=1)
    for promised in (1, 4, 4):
        own.keep(ORDERS, service="", promised=promised)
    assert [one.promised for one in gate.settings] == [1, 4]


def test_a_host_that_listens_at_some_addresses_reports_these_when_it_works_for_another():
    gate = FakeGate()
    own = OwnGate(gate, MEMBERSHIP, ["10.0.0.7"])
    assert own.reach().addresses == ["10.0.0.7"]
    assert "10.0.0.7" not in OwnGate(gate, MEMBERSHIP).reach().addresses


def test_a_gate_hears_of_the_hosts_part_that_an_agent_has_started_for_its_own_machine(monkeypatch):
    """The gate belongs to potluck host, which is not the host any more; its agent is, and was started again."""
    applied = []
    monkeypatch.setattr(OwnerLine, "apply", lambda _, settings: applied.append(settings))
    own = OwnGate("gate", MEMBERSHIP.model_copy(update={"machine": "rosa"}))
    own.keep(ORDERS, service="", promised=1)
    assert not applied, "potluck host may be the host itself"
    own.keep(ORDERS, service="deputy.socket", promised=1)
    assert [one.service for one in applied] == ["deputy.socket"]
