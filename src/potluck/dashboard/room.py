"""Room for a chart on a page: Streamlit counts axes and legends into a chart's height, files do not."""

from typing import Any

_AXIS_AND_LEGEND = 100
_LEGEND_LINE = 26


def roomy(chart: Any, legend_lines: int = 0) -> Any:
    """The chart with its plot as high as it asks for."""
    return chart.properties(height=chart.height + _AXIS_AND_LEGEND + _LEGEND_LINE * legend_lines)
