"""A run as one HTML file with its plots inside: it needs no network, no script and no other file."""

from datetime import datetime, timezone
from types import ModuleType
from typing import Any

from potluck.core.errors import ReportError
from potluck.core.pip_lines import install_extra
from potluck.core.version import __version__
from potluck.core.words import counted
from potluck.report import rows
from potluck.report.account import CAUSES
from potluck.report.account_words import basis, explanations
from potluck.report.story import OPEN_WITH, tell
from potluck.report.view import RunView
from potluck.report.words import duration, percent


def render(view: RunView) -> str:
    """The HTML of the page, with its plots as SVG."""
    plots = drawing()
    charts = {
        "throughput": (plots.throughput, rows.throughput_rows(view)),
        "loss": (plots.loss, rows.loss_rows(view)),
        "scores": (plots.scores, rows.score_rows(view)),
        "shares": (lambda data: plots.shares(data, rows.machine_labels(view)), rows.share_rows(view)),
        "presence": (plots.presence, rows.presence_rows(view)),
        "step_parts": (plots.step_parts, rows.step_rows(view)),
    }
    story = tell(view)
    return make_page(
        "page.html.j2",
        story=story,
        causes=CAUSES,
        counted=counted,
        open_with=OPEN_WITH,
        basis="" if story.account is None else basis(story.account, story.num_steps),
        explanations=[] if story.account is None else explanations(story.account),
        svg={name: draw(data).to_svg() if data else "" for name, (draw, data) in charts.items()},
        began=datetime.fromtimestamp(story.began_at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        settings=view.settings,
    )


def drawing() -> ModuleType:
    """The plots module, or a ReportError if one of its packages, an optional extra, is not installed."""
    try:
        import jinja2  # noqa: F401, PLC0415
        import vl_convert  # noqa: F401, PLC0415

        from potluck.report import plots  # noqa: PLC0415
    except ImportError as error:
        raise ReportError(
            f"plots need the package {error.name}, which is not installed", fix=install_extra("dashboard")
        ) from None
    return plots


def make_page(template: str, **values: Any) -> str:
    """Render one of the templates beside this file."""
    import jinja2  # noqa: PLC0415

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("potluck.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"percent": percent, "duration": duration}
    return environment.get_template(template).render(version=__version__, **values)
