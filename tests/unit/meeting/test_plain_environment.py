"""The variables of a plain run's workers are torchrun's, and point into the gates."""

from potluck.meeting.agent.messages import AgentPlace
from potluck.meeting.agent.plain_environment import plain_environments
from potluck.meeting.home import Home
from potluck.meeting.wire import Assignment, PlainPlace, RunTask
from tests.unit.meeting.test_local_run import GATES, MEMBERSHIP

PLACE = PlainPlace(master="rosa", node_rank=1, num_nodes=2, world_size=3)


def environments(tmp_path, **changes):
    place = AgentPlace(home=Home(tmp_path), membership=MEMBERSHIP, gate="gate", threads=2, data_dir=tmp_path)
    task = RunTask(bundle="0" * 64, entry="train.py", is_plain=True)
    known = {"run": "one", "run_id": "1", "phase": "go", "task": task, "started_by": "ann@rosa", "workers": [1, 2]}
    known |= {"devices": ["cpu", "cpu"], "expected": 3, "lighthouse_port": 20_001, "secret": "s", "runs_dir": None}
    return plain_environments(place, Assignment(**(known | changes), plain=PLACE), PLACE, GATES, tmp_path)


def test_each_worker_finds_its_rank_and_the_store_behind_the_gate(tmp_path):
    first, second = (environments(tmp_path)[rank] for rank in (1, 2))
    assert (first["RANK"], first["LOCAL_RANK"], second["RANK"], second["LOCAL_RANK"]) == ("1", "0", "2", "1")
    for one in (first, second):
        assert (one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"]) == ("3", "2")
        assert (one["NODE_RANK"], one["GROUP_RANK"], one["GROUP_WORLD_SIZE"]) == ("1", "1", "2")
        assert (one["MASTER_ADDR"], one["MASTER_PORT"]) == ("127.77.1.1", "20001")
        assert one["TORCHELASTIC_USE_AGENT_STORE"] == "True"  # no worker opens a store of its own
        assert one["GLOO_SOCKET_IFNAME"] == "lo"
        assert one["POTLUCK_ADDRESS"] == "127.77.1.2"
        assert one["POTLUCK_THREADS"] == "2"
        assert "POTLUCK_SECRET" not in one
        assert "POTLUCK_LIGHTHOUSE" not in one


def test_cards_are_numbered_from_the_first_that_the_machine_gave_and_the_log_is_a_workers_own(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    task = RunTask(bundle="0" * 64, entry="train.py", is_plain=True, env=["NCCL_DEBUG=INFO", "NCCL_NET=Socket"])
    both = environments(tmp_path, devices=["cuda:1", "cuda:2"], task=task)
    assert both[1]["CUDA_VISIBLE_DEVICES"] == "6,7"  # cuda:LOCAL_RANK is the worker's own
    assert [both[rank]["NCCL_DEBUG_FILE"] for rank in (1, 2)] == [f"{tmp_path}/lily-{rank}.nccl.log" for rank in (1, 2)]
    assert "NCCL_IB_DISABLE" not in both[1]  # the user has chosen a network
    assert environments(tmp_path)[1]["CUDA_VISIBLE_DEVICES"] == ""  # this machine joined with its processor alone
    assert "CUDA_VISIBLE_DEVICES" not in environments(tmp_path, devices=["xpu:0", "xpu:1"])[1]


def test_direct_names_the_interface_of_the_route_to_the_host(tmp_path):
    one = environments(tmp_path, is_direct=True)[1]
    assert one["POTLUCK_GRADIENT_ADDRESS"] == "127.0.0.1"  # the host of this test is on this machine
    assert one["GLOO_SOCKET_IFNAME"] == "lo"
    assert one["MASTER_ADDR"] == "127.77.1.1"  # only gradients go past the gates
