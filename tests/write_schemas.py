"""`make schemas`: write the published JSON Schemas anew from the dataclasses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest_cgins
from pytest_cgins import documents
from pytest_cgins.model import TracePack
from pytest_cgins.report.document import report_schema

SCHEMAS = {"report-1.json": report_schema(), "trace-pack-2.json": documents.json_schema(TracePack)}

if __name__ == "__main__":
    folder = Path(pytest_cgins.__file__).parent / "schemas"
    for name, schema in SCHEMAS.items():
        (folder / name).write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")
