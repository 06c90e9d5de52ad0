"""What NCCL finds on this machine by itself."""

from potluck.machine.nccl_settings import infiniband_devices, read_nccl_files


def test_infiniband_devices_are_what_linux_lists(tmp_path):
    assert infiniband_devices(tmp_path / "missing") == ()
    assert infiniband_devices(tmp_path) == ()
    (tmp_path / "mlx5_0").mkdir()
    assert infiniband_devices(tmp_path) == ("mlx5_0",)


def test_settings_in_ncclfiles_are_read_the_later_file_first_in_line(tmp_path):
    system, own = tmp_path / "nccl.conf", tmp_path / "own.conf"
    system.write_text("# a comment=1\nNCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME==ens1f0\nnonsense\n")
    own.write_bytes(b"NCCL_DEBUG=INFO\n\xff\n")
    assert read_nccl_files([system, own, tmp_path / "none"]) == {
        "NCCL_DEBUG": "INFO",
        "NCCL_SOCKET_IFNAME": "=ens1f0",
    }
