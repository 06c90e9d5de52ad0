"""A plot on a page, with room: Streamlit counts axes and legends into a chart's height, files do not."""

import streamlit as st

from potluck.report.plots import Plot

_AXIS_AND_LEGEND = 100
_LEGEND_LINE = 26


def draw(place: "st.delta_generator.DeltaGenerator", plot: Plot, legend_lines: int = 0) -> None:
    """The plot as high as it asks for. Rows travel apart from its looks: nothing checks them one by one."""
    height = plot.height + _AXIS_AND_LEGEND + _LEGEND_LINE * legend_lines
    place.vega_lite_chart(plot.rows, {**plot.spec, "height": height}, width="stretch")
