"""Draws a plot on a page: Streamlit counts axes and legends into a chart's height, HTML files do not."""

import streamlit as st

from potluck.report.plots import Plot

_AXIS_AND_LEGEND = 100
_LEGEND_LINE = 26


def draw(place: "st.delta_generator.DeltaGenerator", plot: Plot, legend_lines: int = 0) -> None:
    """Draw the plot with its own height. Rows are passed apart from the specification: no library checks each row."""
    height = plot.height + _AXIS_AND_LEGEND + _LEGEND_LINE * legend_lines
    place.vega_lite_chart(plot.rows, {**plot.spec, "height": height}, width="stretch")
