"""Plots of what the production kernels reach: `python tests/benchmarks/production_plot.py production-h200.json FOLDER`.

Of the ops, bars say how fast the kernel and torch.compile are against torch; of the models the same. FOLDER gets
production-ops.svg and production-models.svg. Needs pygal (`pytest-cgins[plot]`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pygal
from pygal.style import CleanStyle


def main() -> int:
    document = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(sys.argv[2])
    ops = [
        (
            f"{op['kernel']} {op['shape']}",
            op["eager_us"] / op["kernel_us"],
            _ratio(op, "eager_us", "compile_us"),
        )
        for op in document["ops"]
    ]
    models = [
        (model["model"], model["torch_ns"] / model["kernel_ns"], _ratio(model, "torch_ns", "compile_ns"))
        for model in document["models"]
    ]
    _draw(folder / "production-ops.svg", f"Ops, {document['date']}", ops)
    _draw(folder / "production-models.svg", f"Whole models, {document['date']}", models)
    return 0


def _ratio(row: dict[str, Any], torch: str, compiled: str) -> float | None:
    return row[torch] / row[compiled] if row.get(compiled) else None


def _draw(path: Path, title: str, rows: list[tuple[str, float, float | None]]) -> None:
    chart = pygal.HorizontalBar(
        title=f"{title}: times as fast as torch", js=[], style=CleanStyle, logarithmic=True, zero=1,
        range=(0.4, 2 * max(kernel for _, kernel, _ in rows)), width=1100, print_values_position="top", height=36 * len(rows) + 120,
        print_values=True, formatter=lambda value: f"{value:.2f}×", show_x_guides=True, legend_at_bottom=True,
        disable_xml_declaration=True, truncate_label=60,
    )  # fmt: skip
    chart.x_labels = [name for name, _, _ in reversed(rows)]
    chart.add("torch.compile", [compiled for _, _, compiled in reversed(rows)])
    chart.add("kernels", [kernel for _, kernel, _ in reversed(rows)])
    path.write_text(chart.render(is_unicode=True), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
