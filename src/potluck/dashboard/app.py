"""The dashboard's Streamlit script: `streamlit run app.py -- RUNS_DIR`. The URL names the page and the run."""

import hmac
import sys
import time
from pathlib import Path

import streamlit as st

from potluck.core.environment import read_dashboard_password, read_environment
from potluck.dashboard import comparison_page, run_page, runs_page

PAGES = {"Runs": runs_page.show, "Run": run_page.show, "Compare": comparison_page.show}
_WRONG_PASSWORD_S = 1.0


def main() -> None:
    """Show the page that the URL names."""
    st.set_page_config(page_title="Potluck", layout="wide")
    if not _is_let_in():
        return
    runs_dir = Path(sys.argv[1]) if len(sys.argv) > 1 else read_environment().runs_dir
    asked = st.query_params.get("page", "Runs")
    names = list(PAGES)
    page = st.sidebar.radio("Page", names, index=names.index(asked) if asked in PAGES else 0)
    st.query_params["page"] = page
    st.sidebar.caption(f"runs in {runs_dir.absolute()}")
    PAGES[page](runs_dir)


def _is_let_in() -> bool:
    """Whether this visitor may see the pages: always if no password is set, else after typing the password."""
    password = read_dashboard_password()
    if password is None or st.session_state.get("is_let_in"):
        return True
    typed = st.text_input("Password", type="password", help="It is printed where the dashboard was started.")
    if typed and hmac.compare_digest(typed.encode(), password.encode()):
        st.session_state["is_let_in"] = True
        st.rerun()
    elif typed:
        time.sleep(_WRONG_PASSWORD_S)  # slows down guessing
        st.error("That is not the password.")
    return False


main()
