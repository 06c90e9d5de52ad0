"""The processor time of processes and of all that they have started."""


def cpu_time_s(process_id: int) -> float | None:
    """Seconds of processor time of a process, its ended children and its living descendants; None if it has ended."""
    import psutil  # noqa: PLC0415  only commands that measure pay for the import

    try:
        process = psutil.Process(process_id)
        with process.oneshot():
            times = process.cpu_times()
        spent_s = times.user + times.system + times.children_user + times.children_system
        descendants = process.children(recursive=True)
    except psutil.Error:
        return None
    for one in descendants:
        try:
            own = one.cpu_times()
        except psutil.Error:
            continue
        spent_s += own.user + own.system + own.children_user + own.children_system
    return float(spent_s)


def process_with(argument: str) -> int | None:
    """The process with this command-line argument that this process or its parent has started; None without one."""
    import psutil  # noqa: PLC0415

    try:
        own = psutil.Process()
        for process in [*own.children(), *(own.parent() or own).children()]:
            if argument in process.cmdline():
                return int(process.pid)
    except psutil.Error:
        return None
    return None
