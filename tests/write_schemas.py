"""`make schemas`: write the published JSON Schemas anew from the dataclasses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest_cgins
from pytest_cgins.app.whole_model.document import MODEL_BENCH_VERSION, ModelBenches
from pytest_cgins.core.session_report import REPORT_VERSION, SessionReport
from pytest_cgins.core.trace import TracePack
from pytest_cgins.doctor.findings import DOCTOR_VERSION, DoctorReport
from pytest_cgins.gate.calibration import CALIBRATION_VERSION, Calibration
from pytest_cgins.recording.profile import PROFILE_VERSION, PackProfile
from pytest_cgins.regenerate.methods.classes import METHODS_VERSION, MethodMemory
from pytest_cgins.regenerate.profiling import evidence_documents as evidence
from pytest_cgins.regenerate.proposal import PROPOSAL_VERSION, Proposal
from pytest_cgins.regenerate.search.summary_model import SUMMARY_VERSION, SearchSummary
from pytest_cgins.report.history import HISTORY_VERSION, HistoryEntry
from tests.json_schemas import json_schema, published_schema

EVIDENCE = {
    "env": evidence.EnvironmentEvidence,
    "roofline": evidence.RooflineEvidence,
    "ncu-top": evidence.ProfileEvidence,
    "sass-check": evidence.SassEvidence,
    "clang-tidy": evidence.TidyEvidence,
    "attribution": evidence.AttributionEvidence,
    "bench": evidence.BenchEvidence,
}
SCHEMAS = {
    f"calibration-{CALIBRATION_VERSION}.json": json_schema(Calibration),
    f"doctor-{DOCTOR_VERSION}.json": json_schema(DoctorReport),
    **{
        f"evidence-{name}-{evidence.EVIDENCE_VERSION}.json": json_schema(cls)
        for name, cls in EVIDENCE.items()
    },
    f"methods-{METHODS_VERSION}.json": published_schema(MethodMemory),
    f"model-bench-{MODEL_BENCH_VERSION}.json": json_schema(ModelBenches),
    f"history-{HISTORY_VERSION}.json": published_schema(HistoryEntry),
    f"proposal-{PROPOSAL_VERSION}.json": published_schema(Proposal),
    f"report-{REPORT_VERSION}.json": published_schema(SessionReport),
    f"search-summary-{SUMMARY_VERSION}.json": json_schema(SearchSummary),
    "trace-pack-2.json": json_schema(TracePack),
    f"profile-{PROFILE_VERSION}.json": json_schema(PackProfile),
}

if __name__ == "__main__":
    folder = Path(pytest_cgins.__file__).parent / "schemas"
    for name, schema in SCHEMAS.items():
        (folder / name).write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")
