"""Loops as people write them, on two stand-in accelerators: the same parameters as one process on the CPU."""

from tests.device.crew import WORK_BY_HABIT, DeviceWorker
from tests.multiprocess.crew import environment, largest_difference, lighthouses, result

HABITS = ("gan", "two_optimizers_for_one_model", "a_stream", "forgetting_zero_grad")
SLOW_COPIES = {"STANDIN_COPY_BYTES_PER_S": "300000"}


def test_habits_on_devices_match_one_process_on_the_cpu(tmp_path, on_device):
    def scenarios(device, addresses=None, number=0):
        return [
            {
                "habit": habit,
                "run": habit,
                "wishes": {"device": device},
                "environment": {} if addresses is None else environment(addresses[index], number, expected=2),
            }
            for index, habit in enumerate(HABITS)
        ]

    variables = on_device | SLOW_COPIES
    with lighthouses(len(HABITS)) as addresses:
        workers = [DeviceWorker(tmp_path, "alone", scenarios("cpu"), variables, WORK_BY_HABIT)]
        for number in range(2):
            together = scenarios(f"standin:{number}", addresses, number)
            workers.append(DeviceWorker(tmp_path, f"worker{number}", together, variables, WORK_BY_HABIT))
        try:
            for worker in workers:
                worker.finish()
        finally:
            for worker in workers:
                worker.kill()
    for habit in HABITS:
        alone, *found = (result(tmp_path, name, habit) for name in ("alone", "worker0", "worker1"))
        assert all(each["step"] == alone["step"] for each in found), habit
        assert largest_difference(alone, found[0]) < 1e-10, habit
        assert largest_difference(found[0], found[1]) == 0, habit
