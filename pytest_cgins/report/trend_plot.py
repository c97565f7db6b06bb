"""Trends as a plot: a line a segment, so that nothing is joined over a break."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from pytest_cgins.errors import ConfigError
from pytest_cgins.report.trend import Trend
from pytest_cgins.report.trend_table import plain
from pytest_cgins.text import counted

MOST_LINES = 60
"""More are no plot that anybody reads."""


def write(trends: Sequence[Trend], path: Path) -> None:
    """Write an SVG without scripts: times of the kernel in microseconds a call over dates, on a logarithmic axis.

    Raises:
        ConfigError: pygal is not installed, or there are too many lines, or none.
        OSError: the file cannot be written.
    """
    try:
        import pygal
    except ImportError:
        raise ConfigError(
            "--plot: pygal is not installed", remedy="pip install 'pytest-cgins[plot]'"
        ) from None
    count = sum(len(trend.segments) for trend in trends)
    if not 0 < count <= MOST_LINES:
        raise ConfigError(
            f"--plot: {counted(count, 'line')}, and a plot has 1 to {MOST_LINES}",
            remedy="choose cases with --case, or a time with --since",
        )
    chart = pygal.DateTimeLine(
        title="kernel, µs per call",
        js=[],
        logarithmic=True,
        x_label_rotation=30,
        x_value_formatter=lambda when: f"{when:%Y-%m-%d}",
        value_formatter=lambda value: f"{value:.4g}",
        legend_at_bottom=True,
        legend_at_bottom_columns=1,
        truncate_legend=-1,
        width=1000,
        height=500 + 24 * count,
    )
    for trend in trends:
        for segment in trend.segments:
            changes = plain(", ".join((*segment.hard_changes, *segment.soft_changes)))
            points = [
                {"value": (one.when, one.kernel_ns / 1e3), "label": plain(one.head.commit[:10])}
                for one in segment.entries
            ]
            chart.add(plain(trend.case) + (f" ({changes})" if changes else ""), points)
    drawn = chart.render_tree()
    for parent in list(drawn.iter()):
        for script in [child for child in parent if str(child.tag).endswith("script")]:
            parent.remove(script)
    path.write_bytes(ET.tostring(drawn, encoding="utf-8", xml_declaration=True))
