"""How evenly `--cgins-durations` cuts a suite: the longest part over the mean, by how many parts there are.

python tests/benchmarks/shards.py DURATIONS [--json FILE]

DURATIONS is what `pytest --cgins --cgins-durations=DURATIONS` wrote. Beside it: parts of equally many cases.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

from pytest_cgins.app.session.collect import chosen
from pytest_cgins.core.session_report import Shard
from pytest_cgins.report import durations

COUNTS = (2, 4, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("durations", type=Path)
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    recorded = durations.read(arguments.durations)
    rows = {
        count: (_unevenness(recorded, count), _unevenness(recorded, count, by_number=True))
        for count in COUNTS
    }
    total = sum(recorded.seconds.values())
    print(
        f"{len(recorded.seconds)} cases, {total:.0f} s in all, the longest {max(recorded.seconds.values()):.1f} s"
    )
    print("parts  longest / mean  (of equally many cases)")
    for count, (by_time, by_number) in rows.items():
        print(f"{count:5}  {by_time:14.3f}  {by_number:.3f}")
    if arguments.json:
        document = {
            "machine": platform.processor() or platform.machine(),
            "cases": len(recorded.seconds),
            "seconds": total,
            "longest_over_mean": {
                str(count): {"durations": row[0], "numbers": row[1]} for count, row in rows.items()
            },
        }
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


def _unevenness(recorded: durations.Durations, count: int, *, by_number: bool = False) -> float:
    keys = [(name, "") for name in recorded.seconds]
    sums = [
        sum(
            recorded.seconds[keys[index][0]]
            for index in chosen(keys, Shard(number=number, count=count), None if by_number else recorded)
        )
        for number in range(1, count + 1)
    ]
    return max(sums) / (sum(sums) / count)


if __name__ == "__main__":
    main()
