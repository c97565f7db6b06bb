"""Tables of what `sequential_simulation.py` found, from its JSON alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

TOLERANCES = {"fixed": "2%", "known": "2% + 2.5τ", "estimated": "2% + 2.5 × upper bound of τ, 10 processes"}


def markdown(document: dict[str, Any]) -> str:
    default, strict = (document["rules"][name] for name in ("default", "strict"))
    parts = [
        "# The sequential test in simulation",
        (f"Seed {document['seed']}, scale {document['scale']:g}. α = {percent(default['alpha'])} a suite, "
        f"β = {percent(default['beta'])}; `default`: δ₀ {percent(default['tolerate'])}, δ₁ {percent(default['catch'])}, "
        f"{default['most_blocks']} blocks; `strict`: {percent(strict['tolerate'])}, {percent(strict['catch'])}, "
        f"{strict['most_blocks']}. N = {document['suite']} unless a column says otherwise. "
        f"{document['replayed']['rows']} rows were decided by `SequentialTest` too, {document['replayed']['differences']} "
        "of them differently. Intervals are Clopper's and Pearson's at 95%: a bound is `held` if they lie below it, "
        "`broken` if above, else `open`."),
        "## False alarms, exactly",
        "Every kernel slower by just δ₀; blocks independent; any noise. Summed up, not drawn.",
        table(
            ("profile", "N", "a test", "a suite", "bound α", "cleared on its bound", "bound β"),
            (
                (row["profile"], row["tests"], f"{row['alarm_per_test']:.1e}", percent(row["alarm_per_suite"]),
                 percent(row["alpha"]), percent(row["cleared_on_its_bound"]), percent(row["beta"]))
                for row in document["exact"]
            ),
        ),
        "## False alarms, by shape of noise",
        ("The same, drawn: suites with an alarm. `t2`: Student's t with 2 degrees of freedom; `skewed`: exponential; "
        "`spikes`, `spikes-above`: normal, and one block in twenty off by 16 σ (16% where σ is 1%), on both sides or on one."),
        table(
            ("profile", "noise", "N", "suites", "with an alarm", "interval", "α held?"),
            (
                (row["profile"], row["shape"], row["tests"], row["of"], percent(row["share"]), interval(row), row["verdict"])
                for row in document["shapes"]
            ),
        ),
        "## False alarms, by correlation of blocks",
        ("Normal AR(1) blocks with a lag-1 correlation of ρ, on the bound as above; and the share of kernels that did not "
        "change at all called slower by the whole procedure."),
        table(
            ("profile", "ρ", "N = 1", "held?", "N = 200", "interval", "held?", "unchanged, σ 1%", "unchanged, σ 4%"),
            (
                (
                    row["profile"], f"{row['rho']:g}",
                    percent(row["on_the_bound"]["1"]["share"]), row["on_the_bound"]["1"]["verdict"],
                    percent(row["on_the_bound"]["200"]["share"]), interval(row["on_the_bound"]["200"]),
                    row["on_the_bound"]["200"]["verdict"],
                    *(f"{row[f'unchanged_sigma_{sigma}']['slower']:.1e}" for sigma in ("0.01", "0.04")),
                )
                for row in document["correlation"]
            ),
        ),
        "## Power",
        "Share found SLOWER / called clean, by true slowdown; the rest is INCONCLUSIVE.",
        power_table(document["power"]),
        "Blocks, mean of all tests; what `Power` tells for this σ.",
        blocks_table(document["power"]),
        "## What shapes and correlation cost",
        "`default`, σ = 1%.",
        table(
            ("noise", "true slowdown", "SLOWER", "clean", "INCONCLUSIVE", "blocks, mean"),
            (
                (row.get("shape") or f"ρ = {row['rho']:g}", percent(row["slowdown"]), percent(row["slower"]),
                 percent(row["clean"]), percent(row["inconclusive"]), f"{row['mean_blocks']:.1f}")
                for row in document["noises"]
            ),
        ),
        "## Bias between processes",
        ("`default`. Each process shifts all of a case's blocks by a normal bias of standard deviation τ. Confirmed: SLOWER "
        "in a fresh process too, there by a test of its own (N = 1). Suites: of 200 unchanged kernels, with any alarm."),
        bias_table(document["bias"]),
        "## Intervals of the ratio",
        ("Share of 95% intervals that hold the true ratio: at the block where the test ended, and had all been taken. It is a "
        "confidence sequence: the intervals after each block of a test all hold it in 95% of tests."),
        table(
            ("σ", "true slowdown", "at the end", "after all blocks"),
            (
                (percent(row["sigma"]), percent(row["slowdown"]), percent(row["at_the_end"]), percent(row["after_all_blocks"]))
                for row in document["intervals"]
            ),
        ),
        "## Other rules on the same samples",
        ("Alarms a case, and in brackets the mean number of blocks; at +0% each is a false alarm, and of 200 such cases the "
        "chance of any is given after the arrow."),
        rivals_table(document["rivals"], document["suite"]),
        f"{document['cpu_seconds']:.0f} s of one core; " + ", ".join(f"{key} {value}" for key, value in document["environment"].items()) + ".",
    ]  # fmt: skip
    return "\n\n".join(parts)


def percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def interval(told: dict[str, Any]) -> str:
    low, high = told["interval_95"]
    return f"{percent(low)} to {percent(high)}"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def power_table(rows: list[dict[str, Any]]) -> str:
    points = rows[0]["curve"]
    return table(
        ("profile", "σ", *(f"{100 * point['slowdown']:+g}%" for point in points)),
        (
            (
                row["profile"],
                percent(row["sigma"]),
                *(f"{point['slower']:.3f} / {point['clean']:.3f}" for point in row["curve"]),
            )
            for row in rows
        ),
    )


def blocks_table(rows: list[dict[str, Any]]) -> str:
    def blocks(row: dict[str, Any], slowdown: float) -> str:
        return next(f"{point['mean_blocks']:.1f}" for point in row["curve"] if point["slowdown"] == slowdown)

    return table(
        ("profile", "σ", "+0%", "+3%", "+5%", "+10%", "told: detectable", "told: blocks that decide"),
        (
            (
                row["profile"],
                percent(row["sigma"]),
                *(blocks(row, slowdown) for slowdown in (0.0, 0.03, 0.05, 0.10)),
                percent(row["detectable_as_told"]) if row["detectable_as_told"] is not None else "none",
                row["blocks_needed_as_told"] or "none",
            )
            for row in rows
        ),
    )


def bias_table(rows: list[dict[str, Any]]) -> str:
    def found(told: dict[str, Any]) -> str:
        return f"{told['slower']:.4f} / {told['slower_confirmed']:.4f} / {told['clean']:.4f}"

    def suites(told: dict[str, Any]) -> str:
        return f"{percent(told['share'])} ({told['verdict']})"

    return table(
        (
            "σ", "τ", "δ₀", "+0%: INCONCLUSIVE", "suites, +0%: first process", "confirmed", "interval",
            "+5%: SLOWER / confirmed / clean", "+8%",
        ),
        (
            (
                percent(row["sigma"]), percent(row["tau"]), TOLERANCES[row["tolerance"]],
                percent(row["slowdown_0"]["inconclusive"]), suites(row["slowdown_0"]["suites_slower"]),
                suites(row["slowdown_0"]["suites_slower_confirmed"]),
                interval(row["slowdown_0"]["suites_slower_confirmed"]),
                found(row["slowdown_0.05"]), found(row["slowdown_0.08"]),
            )
            for row in rows
        ),
    )  # fmt: skip


def rivals_table(rows: list[dict[str, Any]], suite: int) -> str:
    settings = list(dict.fromkeys((row["shape"], row["sigma"]) for row in rows))
    slowdowns = list(dict.fromkeys(row["slowdown"] for row in rows))
    told = {(row["shape"], row["sigma"], row["slowdown"]): row["rules"] for row in rows}

    def cell(alarms: float, blocks: float, slowdown: float) -> str:
        any_of_suite = f" → {percent(1 - (1 - alarms) ** suite)}" if slowdown == 0 else ""
        return f"{percent(alarms)}{any_of_suite} ({blocks:.0f})"

    return table(
        ("noise", "rule", *(f"{100 * slowdown:+g}%" for slowdown in slowdowns)),
        (
            (
                f"{shape}, σ {percent(sigma)}",
                rule,
                *(
                    cell(one[rule]["alarms"], one[rule]["mean_blocks"], slowdown)
                    for slowdown in slowdowns
                    for one in [told[shape, sigma, slowdown]]
                ),
            )
            for shape, sigma in settings
            for rule in rows[0]["rules"]
        ),
    )
