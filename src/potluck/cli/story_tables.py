"""Prints the report of a run, and a comparison of runs."""

from rich.text import Text

from potluck.cli.account_tables import show_account
from potluck.cli.fitting import print_table
from potluck.cli.named_rows import print_rows
from potluck.cli.plan_tables import plain_table
from potluck.cli.terminal import Console
from potluck.core.words import TUNED, counted
from potluck.planning.explain import seconds_text
from potluck.report.compare import Comparison, table, verdict
from potluck.report.story import OPEN_WITH, DeviceStory, Story
from potluck.report.words import duration, percent

_MOST_PLANS = 5
_BAR = 40
_MOST_OPERATORS = 8
_IN_ACCOUNT = ("alone", "efficiency", "predicted")


def show_story(console: Console, story: Story) -> None:
    """Print a run's report in sections, the most important first."""
    console.print(Text(f"{story.name}: {story.status}", style="bold"))
    left_to_account = _IN_ACCOUNT if story.account is not None else ()
    facts = {**story.what, **story.result}
    print_rows(console, {name: text for name, text in facts.items() if name not in left_to_account})
    if story.message:
        console.print(Text(f"  {story.message}"), soft_wrap=True)
    _section(console, "machines")
    machines = plain_table("machine", "device", "samples", "share", "samples/s here", "samples/s alone", "steps away")
    for row in story.machines:
        machines.add_row(
            row.machine,
            row.device,
            f"{row.samples:,}",
            percent(row.part),
            f"{row.samples_per_s:,.1f}",
            "" if row.solo_samples_per_s is None else f"{row.solo_samples_per_s:,.1f}",
            f"{row.steps_away:,}" + (f", {row.steps_benched:,} of them benched" if row.steps_benched else ""),
        )
    print_table(console, machines, ("device",))
    for tuned in dict.fromkeys(line.text for line in story.notices if f": {TUNED}: " in line.text):
        console.print(Text(tuned), soft_wrap=True)
    if story.devices.cards:
        _section(console, "cards")
        _show_cards(console, story.devices)
    if story.account is not None:
        _section(console, "where the time went")
        show_account(console, story.account, num_steps=story.num_steps)
    if story.devices.traces:
        _section(console, "operators, in a mean step that torch.profiler recorded")
        _show_traces(console, story.devices)
    if story.faults:
        _section(console, "faults and recoveries")
        for line in story.faults:
            who = f"{line.machine}: " if line.machine else ""
            console.print(Text(f"{duration(line.time - story.began_at):>12}  {who}{line.text}"), soft_wrap=True)
        cost = f"machines that came and went cost the others {duration(story.fault_s)} of waiting"
        console.print(Text(cost), soft_wrap=True)
    if story.plans:
        _section(console, f"plans: {counted(len(story.plans) - 1, 'change')} after the first")
        for plan in story.plans[-_MOST_PLANS:]:
            text = f"{duration(plan.after_s):>12}  from step {plan.step}: {plan.shares}  ({plan.reason})"
            console.print(Text(text), soft_wrap=True)
    if story.repeat:
        _section(console, "repeat it")
        for command in story.repeat:
            console.print(Text(f"  {command}"), soft_wrap=True)


def _show_cards(console: Console, devices: DeviceStory) -> None:
    cards = plain_table("machine", "card", "busy", "memory at most", "power")
    for row in devices.cards:
        cards.add_row(row.machine, row.card, row.busy_text, row.memory_text, row.power_text)
    print_table(console, cards)
    for line in devices.findings:
        console.print(Text(line, style="yellow"), soft_wrap=True)


def _show_traces(console: Console, devices: DeviceStory) -> None:
    for trace in devices.traces:
        console.print(Text(trace.text), soft_wrap=True)
        operators = plain_table("operator", "calls", "own time")
        for cost in trace.operators[:_MOST_OPERATORS]:
            where = " (on the card)" if cost.on_device else ""
            operators.add_row(f"{cost.name}{where}", f"{cost.calls:g}", seconds_text(cost.seconds))
        print_table(console, operators)
    console.print(Text(OPEN_WITH), soft_wrap=True)


def _section(console: Console, title: str) -> None:
    console.print()
    console.print(Text(title, style="bold"))


def show_comparison(console: Console, comparison: Comparison) -> None:
    """Print which run was fastest, a table of figures, bars of throughput, and the settings that differ."""
    console.print(Text(verdict(comparison), style="bold"), soft_wrap=True)
    console.print()
    headings, lines = table(comparison)
    figures = plain_table(*(line[0] for line in [headings, *lines]))
    for heading, *values in list(zip(headings, *lines, strict=True))[1:]:
        figures.add_row(heading, *values)
    print_table(console, figures)
    fastest = comparison.fastest
    if fastest is not None:
        _section(console, "samples/s")
        longest = max(len(run.run) for run in comparison.runs)
        for run in comparison.runs:
            bar = "#" * round(_BAR * run.samples_per_s / fastest.samples_per_s)
            console.print(Text(f"{run.run:<{longest}}  {bar:<{_BAR}} {run.samples_per_s:,.1f}"), soft_wrap=True)
    if comparison.differing:
        _section(console, "settings that differ")
        settings = plain_table("setting", *(run.run for run in comparison.runs))
        for key, chosen in comparison.differing.items():
            settings.add_row(key, *chosen)
        print_table(console, settings)
