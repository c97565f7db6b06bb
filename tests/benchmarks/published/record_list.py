"""Record the ops of a list: `python record_list.py LIST LEVEL [ONLY]`, in the project."""

import importlib
import json
import re
import sys
from pathlib import Path

import catalogue

import pytest_cgins


def main() -> None:
    module, level, only = sys.argv[1:4]
    importlib.import_module(module)
    entries = [entry for entry in catalogue.ENTRIES if re.search(only, entry.name)]
    left_out = {}
    backward = level == "function"
    ops = sorted({entry.op for entry in entries})
    # With names, a backward would have to be named as well.
    with pytest_cgins.record(
        "pack", ops=None if backward else ops, level=level, backward=backward, max_per_op=4
    ):
        for entry in entries:
            try:
                entry.run()
            except Exception as error:  # noqa: BLE001 - whatever an op raises on this device
                left_out[entry.name] = f"its call raised {type(error).__name__}: {str(error)[:160]}"
    targets = {entry.name: (entry.target, entry.op) for entry in entries}
    told = {"entered": len(entries), "left_out": left_out, "targets": targets}
    Path("recorded.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
