"""Lines reach the disk as they are written, and a full disk costs only what did not fit."""

import subprocess
import sys
from pathlib import Path

import pytest

from enginebench.records.files import read_requests
from loadtests.harness.recording.recorder import Recorder
from loadtests.harness.recording.telemetry_sampler import parse_metrics
from tests.support.records import record


def test_what_is_written_reads_back_equal(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "requests-0.jsonl")
    for number in range(3):
        recorder.write(record(number))
        assert len(list(read_requests(tmp_path))) == number + 1, "on disk at once, before any close"
    recorder.close()
    assert list(read_requests(tmp_path)) == [record(number) for number in range(3)]
    assert (tmp_path / "requests-0.jsonl").read_text() == "".join(record(number).to_line() for number in range(3))


def test_a_request_that_outlives_the_run_is_counted_as_lost(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "requests-0.jsonl")
    recorder.close()
    recorder.close()
    recorder.write(record(1))
    assert recorder.lost == 1
    assert list(read_requests(tmp_path)) == []


FULL_DISK = """
import logging, resource, sys
from pathlib import Path
from loadtests.harness.recording.recorder import Recorder
from tests.support.records import record
logging.basicConfig(format="%(message)s")
folder = Path(sys.argv[1])
recorder = Recorder(folder / "requests-0.jsonl")
recorder.write(record(0))
size = recorder.path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))  # room for a part of the next line
for number in (1, 2):
    recorder.write(record(number))
resource.setrlimit(resource.RLIMIT_FSIZE, (10 * size, resource.RLIM_INFINITY))  # somebody made room
recorder.write(record(3))
recorder.close()
print(recorder.lost)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are POSIX")
def test_a_full_disk_is_reported_once_and_costs_only_what_did_not_fit(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(root)},
    )
    assert done.stdout.split() == ["2"]
    assert done.stderr.count("Cannot write") == 1
    assert "lacks 2 lines" in done.stderr
    assert [one.request_id for one in read_requests(tmp_path)] == ["0-0", "0-3"]


def test_telemetry_keeps_the_families_that_count() -> None:
    text = """
# HELP enginebench_requests_running Requests.
# TYPE enginebench_requests_running gauge
enginebench_requests_running{engine="fake"} 3.0
enginebench_time_to_first_token_seconds_bucket{engine="fake",le="0.1"} 5.0
enginebench_time_to_first_token_seconds_sum{engine="fake"} 1.25
enginebench_time_to_first_token_seconds_created{engine="fake"} 1.7e9
vllm:num_requests_waiting{model="a b}"} 7 1700000000
vllm:num_requests_waiting{model="/mnt/s3_bucket/m"} 2
process_cpu_seconds_total 12.5
enginebench_kv_cache_usage_ratio NaN
vllm_kv_cache_usage_perc{model="a\u2028b"} 0.5
python_info{version="3"} 1.0
"""
    assert parse_metrics(text) == {
        'enginebench_requests_running{engine="fake"}': 3.0,
        'enginebench_time_to_first_token_seconds_sum{engine="fake"}': 1.25,
        'vllm:num_requests_waiting{model="a b}"}': 7.0,
        'vllm:num_requests_waiting{model="/mnt/s3_bucket/m"}': 2.0,
        'vllm_kv_cache_usage_perc{model="a\u2028b"}': 0.5,
        "process_cpu_seconds_total": 12.5,
    }
