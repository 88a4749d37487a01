"""The published JSON Schema is that of the code, and says what a record is."""

import json
import subprocess
import sys

import jsonschema
import pytest

from enginebench.records.schema import json_schema
from tests.support.records import RECORD
from tests.support.servers.served import ROOT

SCHEMA = ROOT / "docs" / "request-record.schema.json"


def faults(line: dict[str, object]) -> list[object]:
    """The fields that the schema refuses."""
    found = jsonschema.Draft202012Validator(json_schema()).iter_errors(line)
    return [error.absolute_path[0] if error.absolute_path else error.message for error in found]


def test_the_published_schema_is_what_the_command_writes() -> None:
    command = [sys.executable, "-m", "enginebench.records.schema"]
    written = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert SCHEMA.read_text() == written, "run: python -m enginebench.records.schema > docs/request-record.schema.json"
    jsonschema.Draft202012Validator.check_schema(json.loads(written))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"outcome": "fine"}, id="an unknown outcome"),
        pytest.param({"event": "sent"}, id="a request that has only been sent"),
        pytest.param({"t_send": 0.5}, id="half a nanosecond"),
        pytest.param({"t_sched": None}, id="no planned instant"),
    ],
)
def test_the_schema_refuses_what_is_no_record(change: dict[str, object]) -> None:
    (path,) = faults(json.loads(RECORD.to_line()) | change)
    assert path == next(iter(change)), "that field, and no other"
