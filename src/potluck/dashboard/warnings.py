"""What the doctor says of the machine that shows the pages, looked at now and then."""

import streamlit as st

from potluck.doctor.checks.catalogue import examine_machine
from potluck.doctor.finding import is_trouble
from potluck.machine.snapshot import take_facts

_EVERY_S = 60.0
_NOT_HERE = ("port-in-use",)  # by the host itself, while it is one


def show_warnings() -> None:
    """A line each; nothing where all is well."""
    for line in _doctor_says():
        st.warning(f"The doctor says of this machine: {line}")


@st.cache_data(ttl=_EVERY_S, show_spinner=False)
def _doctor_says() -> list[str]:
    found = examine_machine(take_facts(with_torch=False))
    told = [one for one in found if is_trouble(one) and one.id not in _NOT_HERE]
    return [f"{one.what} (fix: potluck doctor --check {one.id})" for one in told]
