"""Shows the doctor's findings about the machine that serves the dashboard, examined at most once a minute."""

import streamlit as st

from potluck.doctor.checks.catalogue import examine_machine
from potluck.doctor.finding import is_trouble
from potluck.machine.snapshot import take_facts

_EVERY_S = 60.0
_NOT_HERE = ("port-in-use",)  # on a host, by the host itself


def show_warnings() -> None:
    """Show a warning for each failure or warning of the doctor; nothing if there is none."""
    for line in _doctor_says():
        st.warning(f"The doctor says of this machine: {line}")


@st.cache_data(ttl=_EVERY_S, show_spinner=False)
def _doctor_says() -> list[str]:
    found = examine_machine(take_facts(with_torch=False))
    told = [one for one in found if is_trouble(one) and one.id not in _NOT_HERE]
    return [f"{one.what} (fix: potluck doctor --check {one.id})" for one in told]
