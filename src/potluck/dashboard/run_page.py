"""The dashboard's page of one run, while it trains or after."""

from pathlib import Path

import streamlit as st

from potluck.core.run_folder import RunFolder
from potluck.core.shell_words import quote
from potluck.core.words import counted
from potluck.dashboard.followed import follow, names_of_runs
from potluck.dashboard.plot import draw
from potluck.dashboard.warnings import show_warnings
from potluck.dashboard.wrapped import wrapped_table
from potluck.events.progress_lines import backend_lines
from potluck.report import plots, rows
from potluck.report.account_words import figures as account_figures
from potluck.report.cards import card_rows, energy_of
from potluck.report.idle_cards import idle_cards
from potluck.report.pace import recent_samples_per_s
from potluck.report.story import on_cards
from potluck.report.view import RunView
from potluck.report.words import duration, percent

_EVERY_S = 1.0
_RECENT_S = 5.0
_MOST_LINES = 40


def show(runs_dir: Path) -> None:
    """Let the visitor choose a run, and show it; a run that trains is refreshed every second."""
    names = names_of_runs(runs_dir)
    if not names:
        st.title("Run")
        st.info(f"There are no runs in {runs_dir.absolute()}. Start one with: potluck train")
        return
    asked = st.query_params.get("run")
    name = st.sidebar.selectbox("Run", names, index=names.index(asked) if asked in names else 0)
    st.query_params["run"] = name
    followed = follow(RunFolder(runs_dir / name))
    is_live = followed.error is None and followed.view.status == "running"
    st.fragment(_body, run_every=_EVERY_S if is_live else None)(runs_dir, name)


def _body(runs_dir: Path, name: str) -> None:
    followed = follow(RunFolder(runs_dir / name))
    view = followed.view
    if followed.error is not None:
        st.title(name)
        st.error(f"{followed.error.args[0]}\n\nFix: {followed.error.fix}")
        return
    with followed.lock:
        if view.is_plain:
            _plain(view, name)
            return
        with st.container():
            _head(view, name)
        if not view.state.step:
            st.info("No step is committed yet.")
            _happenings(view)
            return
        _charts(view)
        _cards(view)
        _usage(view)
        _plans(view)
        _happenings(view)


def _plain(view: RunView, name: str) -> None:
    """What is known from outside of a run whose script does not use Potluck."""
    account = view.plain_account()
    st.title(name)
    machines = ", ".join(view.machines[:12]) or "no machine yet"
    st.caption(f"{view.status}, {duration(account.seconds)}, on {machines}; a plain script: its steps are not known")
    if cause := view.plain_cause:
        st.error(cause)
    for line in filter(None, (account.verdict(), account.other_programs(), *account.written())):
        st.text(line)
    _usage(view)
    _happenings(view)


def _head(view: RunView, name: str) -> None:
    state, account = view.state, view.account()
    st.title(name)
    since = duration(view.updated_at - view.began_at - view.attendance.paused_s) if view.began_at else "no time"
    paused = f" without pauses of {duration(view.attendance.paused_s)}" if view.attendance.paused_s else ""
    st.caption(f"{view.shown_status}, {since}{paused}, on {_machines(view) or 'no machine yet'}")
    if state.backend is not None:
        st.caption(" ".join(f"{line[:1].upper()}{line[1:]}." for line in backend_lines(state.backend)))
    with st.container():  # warnings that come and go must not move the elements below them
        _warnings(view, {} if account is None else account.benched)
    accuracy = state.scores.get("held_out_accuracy")
    figures = {
        f"step of {state.last_step:,}" if state.last_step else "step": f"{state.step:,}",
        "samples/s": f"{recent_samples_per_s(view, _RECENT_S):,.0f}" if view.status == "running" else _mean(view),
        "efficiency": "" if account is None or account.efficiency is None else percent(account.efficiency),
        "last loss": "" if state.loss is None else f"{state.loss:.4f}",
        "accuracy": "" if accuracy is None else percent(accuracy),
        "lost to faults": duration(view.merge.regroup_s),
    }
    for column, (label, text) in zip(st.columns(len(figures)), figures.items(), strict=True):
        column.metric(label, text or "-")
    if account is not None and account.efficiency is not None:
        told = account_figures(account)
        st.caption(f"Efficiency: {told['together']}, against {told['alone']}.")


def _machines(view: RunView) -> str:
    return ", ".join(on_cards(view, machine) for machine in view.machines[:12])


def _warnings(view: RunView, benched: dict[str, str]) -> None:
    if view.status == "interrupted":
        st.warning("No process trains this run, and the last one ended without a word. Go on with: " + _resume(view))
    elif view.status == "failed":
        st.error(f"{view.state.message or 'The run failed.'} Go on with: {_resume(view)}")
    elif view.status == "running":
        if away := view.away():
            st.warning(f"Away: {', '.join(away)}. The others go on.")
        show_warnings()
    for machine, why in benched.items():
        st.info(f"{machine} is benched: {why}")


def _charts(view: RunView) -> None:
    left, right = st.columns(2)
    _chart(left, "Throughput", rows.throughput_rows(view), plots.throughput)
    _chart(right, "Shares", rows.share_rows(view), lambda data: plots.shares(data, rows.machine_labels(view)))
    left, right = st.columns(2)
    _chart(left, "A mean step, by cause", rows.step_rows(view), plots.step_parts, legend_lines=6)
    _chart(right, "Machines coming and going", rows.presence_rows(view), plots.presence, legend_lines=2)
    left, right = st.columns(2)
    _chart(left, "Training loss", rows.loss_rows(view), plots.loss)
    _chart(right, "Evaluations", rows.score_rows(view), plots.scores)


def _cards(view: RunView) -> None:
    found = card_rows(view)
    if not found:
        return
    st.markdown("##### Cards")
    cells = [(row.machine, row.card, row.busy_text, row.memory_text, row.power_text) for row in found]
    st.html(wrapped_table(("machine", "card", "busy", "memory at most", "power"), cells))
    if (energy := energy_of(view)) is not None:
        st.caption(energy.text)
    for line in idle_cards(found, view.account()):
        st.warning(line)


def _usage(view: RunView) -> None:
    data = rows.usage_rows(view)
    if not data:
        return
    st.markdown("##### Use of the machines")
    for index, what in enumerate(dict.fromkeys(row["what"] for row in data)):
        if index % 2 == 0:
            columns = st.columns(2)
        draw(columns[index % 2], plots.usage(data, what, rows.machine_labels(view)))


def _plans(view: RunView) -> None:
    if not view.merge.plans:
        return
    with st.expander(f"Plans: {counted(len(view.merge.plans) - 1, 'change')} after the first"):
        lines = [
            {
                "after": duration(at - view.began_at),
                "from step": plan.step,
                "shares": ", ".join(f"{plan.machines.get(name, name)} {n}" for name, n in plan.shares.items()),
                "predicted samples/s": round(plan.samples_per_s, 1),
                "why": plan.reason,
            }
            for at, plan in view.merge.plans[-_MOST_LINES:]
        ]
        st.dataframe(lines, hide_index=True, width="stretch")


def _happenings(view: RunView) -> None:
    lines = [line for line in view.happenings() if line.kind != "plan"][-_MOST_LINES:]
    if not lines:
        return
    st.markdown("##### What happened")
    began = view.began_at
    cells = [(duration(x.time - began), x.machine, x.text) for x in reversed(lines)]
    st.html(wrapped_table(("after", "machine", "what"), cells))


def _chart(
    place: "st.delta_generator.DeltaGenerator", title: str, data: rows.Rows, make: plots.Draw, legend_lines: int = 0
) -> None:
    if data:
        place.markdown(f"##### {title}")
        draw(place, make(data), legend_lines)


def _mean(view: RunView) -> str:
    return f"{view.merge.samples_per_s:,.0f}"


def _resume(view: RunView) -> str:
    if "script" in view.settings:
        where = "" if view.settings.get("bundle") else " --solo"
        script = quote(str(view.settings["script"]))
        return f"potluck run{where} --resume --experiment-name {view.folder.name} {script}"
    return f"potluck train --resume --experiment-name {view.folder.name}"
