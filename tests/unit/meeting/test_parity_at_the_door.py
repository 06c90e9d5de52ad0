"""A machine with other versions joins after a parity check, or is refused with the check's number."""

import asyncio
import threading

import msgspec
import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from potluck.core.errors import MeasureError, MeetingError
from potluck.machine.parity import ParityReading, StepReading
from potluck.meeting.access.proof import prove_join
from potluck.meeting.host.admission import Door, NotProvenError, ParityWantedError
from potluck.meeting.host.credentials import most_bytes, refuse
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.wire import PARITY_WANTED, JoinRequest
from tests.unit.meeting.test_doorway import facts

STEP = StepReading(loss=(1.6, 1.5), gradient=(0.5, -0.25), parameters=(1.0, 2.0))
OWN = ParityReading(data_order="a" * 64, initial_weights="b" * 64, float32=STEP, float64=STEP)
WRONG = replace(OWN, float32=replace(STEP, gradient=(0.5, -0.2)))
NEAR = {"torch": "2.12.1+cu128", "python": "3.10.2"}


class Entrance:
    """A door with a roster, and how often the host has computed its own reading."""

    def __init__(self, folder, read=None):
        self.num_readings = 0
        self._read = read or (lambda: OWN)
        self.roster = MachineRoster(folder / "roster.json")
        self.door = Door(
            token=b"t" * 16,
            fingerprint=b"f" * 16,
            facts=facts("rosa", address="10.0.0.1"),
            roster=self.roster,
            read_parity=self._count,
        )

    def _count(self):
        self.num_readings += 1
        return self._read()

    async def join(self, machine, *, reading=None, versions=None, token=b"t" * 16):
        request = JoinRequest(
            challenge=self.door.version().challenge,
            facts=facts(machine, versions=versions) if isinstance(machine, str) else machine,
            clock_ahead_s=0.0,
            round_trip_s=0.0,
            parity=None if reading is None else msgspec.json.encode(reading).decode(),
        )
        body = request.model_dump_json().encode()
        return await self.door.join(body, prove_join(token, request.challenge, b"f" * 16, body), "10.0.0.9")


@pytest.fixture
def entrance(tmp_path):
    return Entrance(tmp_path)


def test_equal_versions_need_no_reading(entrance):
    asyncio.run(entrance.join("lily"))
    assert entrance.num_readings == 0


def test_near_versions_are_asked_for_a_reading_and_then_admitted(entrance):
    with pytest.raises(ParityWantedError, match=r"lily has torch 2\.12\.1\+cu128 and Python 3\.10\.2") as wanted:
        asyncio.run(entrance.join("lily", versions=NEAR))
    assert refuse(wanted.value).status_code == PARITY_WANTED
    assert "lily" not in entrance.roster.machines
    asyncio.run(entrance.join("lily", versions=NEAR, reading=OWN))
    asyncio.run(entrance.join("fern", versions=NEAR, reading=OWN))
    assert {"lily", "fern"} <= set(entrance.roster.machines)
    assert entrance.num_readings == 1


def test_another_reading_is_refused_with_its_number_and_the_fix(entrance):
    with pytest.raises(MeetingError, match=r"gradient in float32: differs by 1\.0e-01, at most 1e-05") as refused:
        asyncio.run(entrance.join("lily", versions=NEAR, reading=WRONG))
    assert "lily (torch 2.12.1+cu128 and Python 3.10.2) does not compute what rosa" in refused.value.args[0]
    assert "on lily: python -m pip install 'torch==2.13.0'" in refused.value.fix
    assert "--python 3.11" in refused.value.fix
    assert "lily" not in entrance.roster.machines


def test_a_machine_without_the_token_is_not_told_the_host_s_versions(entrance):
    with pytest.raises(NotProvenError) as refused:
        asyncio.run(entrance.join("lily", versions=NEAR, reading=OWN, token=b"w" * 16))
    told = f"{refused.value}{entrance.door.version().model_dump_json()}"
    assert "2.13" not in told
    assert "3.11" not in told
    assert entrance.num_readings == 0


def test_versions_further_apart_are_refused_without_a_reading(entrance):
    with pytest.raises(MeetingError, match="do not train together") as refused:
        asyncio.run(entrance.join("lily", versions={"torch": "2.10.0"}, reading=OWN))
    assert not isinstance(refused.value, ParityWantedError)
    assert entrance.num_readings == 0


def test_a_host_that_cannot_compute_its_reading_says_so_and_tries_again(tmp_path):
    broken = threading.Event()
    broken.set()

    def read():
        if broken.is_set():
            raise MeasureError("no torch", fix="python -m potluck.probes.parity")
        return OWN

    entrance = Entrance(tmp_path, read)
    with pytest.raises(MeetingError, match="rosa cannot check a machine with other versions: no torch") as refused:
        asyncio.run(entrance.join("lily", versions=NEAR, reading=OWN))
    assert refused.value.fix.startswith("on rosa: ")
    broken.clear()
    asyncio.run(entrance.join("lily", versions=NEAR, reading=OWN))
    assert entrance.num_readings == 2


def test_another_machine_does_not_get_the_name_while_the_host_computes(tmp_path):
    entrance = Entrance(tmp_path)
    calm, taken = facts("lily", versions=NEAR), facts("lily", machine_id="other", versions=NEAR)

    async def both():
        return await asyncio.gather(
            entrance.join(calm, reading=OWN), entrance.join(taken, reading=OWN), return_exceptions=True
        )

    first, second = asyncio.run(both())
    assert not isinstance(first, Exception)
    assert "has joined as lily" in str(second)
    assert entrance.num_readings == 1


def test_a_reading_fits_into_a_request():
    many = StepReading(loss=(1 / 3,) * 2, gradient=(1 / 3,) * 100, parameters=(1 / 3,) * 100)
    size = len(msgspec.json.encode(replace(OWN, float32=many, float64=many)))
    assert size < 30_000 < most_bytes("/join")
    with pytest.raises(ValueError, match="parity"):
        JoinRequest(challenge="c", facts=facts(), clock_ahead_s=0.0, round_trip_s=0.0, parity='{"data_order": 1}')


def test_a_reading_that_is_nested_without_end_is_no_reading():
    deep = "[" * 14_000
    with pytest.raises(ValidationError):
        JoinRequest(
            challenge="c" * 32,
            facts=facts("lily"),
            clock_ahead_s=0.0,
            round_trip_s=0.0,
            parity=f'{{"unknown": {deep}',
        )
