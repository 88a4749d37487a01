"""Small results of other tools, written by hand: requests and aggregates whose numbers can be worked out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

START = 1_760_000_000.0  # Unix time, seconds
REQUESTS = 40


def guidellm(path: Path, failed: int = 0, kept: int = REQUESTS) -> Path:
    """Four streams. Each request is sent 0.25 s after the one before; TTFT 0.2 s, then 9 tokens in 0.9 s."""

    def request(index: int) -> dict[str, Any]:
        sent = START + 0.25 * index
        return {
            "request_id": f"r{index}",
            "prompt_tokens": 100,
            "output_tokens": 10,
            "info": {
                "status": "completed",
                "scheduler_process_id": 0,
                "timings": {
                    "targeted_start": None,
                    "resolve_start": sent - 0.001,
                    "request_start": sent,
                    "first_token_iteration": sent + 0.2,
                    "last_token_iteration": sent + 1.1,
                    "token_iterations": 10,
                    "request_end": sent + 1.11,
                },
            },
        }

    def broken(index: int) -> dict[str, Any]:
        one = request(index)
        one["info"] |= {"status": "errored", "error": "503 queue full"}
        one["info"]["timings"] |= {"first_token_iteration": None, "last_token_iteration": None, "token_iterations": 0}
        return one | {"output_tokens": None}

    benchmark = {
        "config": {"strategy": {"type_": "concurrent", "streams": 4}},
        "start_time": START,
        "end_time": START + 0.25 * REQUESTS + 1.1,
        "metrics": {"request_totals": {"successful": REQUESTS}},
        "requests": {
            "successful": [request(index) for index in range(kept)],
            "incomplete": [],
            "errored": [broken(REQUESTS + index) for index in range(failed)],
        },
    }
    document = {
        "metadata": {"guidellm_version": "0.4.0"},
        "args": {"target": "http://127.0.0.1:8000", "model": "acme/tiny"},
        "benchmarks": [benchmark],
    }
    path.write_text(json.dumps(document))
    return path


def vllm_bench(path: Path, detailed: bool = True) -> Path:
    """Four at a time: TTFT 0.1 s, then 4 gaps of 0.05 s."""
    document: dict[str, Any] = {
        "date": "20261001-120000",
        "backend": "vllm",
        "model_id": "acme/tiny",
        "num_prompts": REQUESTS,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 4,
        "duration": 3.3,
        "completed": REQUESTS,
        "failed": 0,
        "total_input_tokens": 100 * REQUESTS,
        "total_output_tokens": 5 * REQUESTS,
        "request_throughput": REQUESTS / 3.3,
        "output_throughput": 5 * REQUESTS / 3.3,
        "total_token_throughput": 105 * REQUESTS / 3.3,
        "mean_ttft_ms": 100.0,
        "median_ttft_ms": 100.0,
        "std_ttft_ms": 0.0,
        "p99_ttft_ms": 100.0,
        "mean_tpot_ms": 50.0,
        "median_tpot_ms": 50.0,
        "std_tpot_ms": 0.0,
        "p99_tpot_ms": 50.0,
    }
    if detailed:
        document |= {
            "input_lens": [100] * REQUESTS,
            "output_lens": [5] * REQUESTS,
            "ttfts": [0.1] * REQUESTS,
            "itls": [[0.05] * 4] * REQUESTS,
            "latencies": [0.3] * REQUESTS,
            "start_times": [5.0 + 0.3 * (index // 4) for index in range(REQUESTS)],
            "errors": [""] * REQUESTS,
        }
    path.write_text(json.dumps(document))
    return path


def aiperf(folder: Path) -> Path:
    """Both exports, of 20 requests at a concurrency of 2: TTFT 50 ms, two gaps of 20 ms; the last one failed."""
    lines = []
    for index in range(20):
        sent = int(START * 1e9) + (index // 2) * 100_000_000
        about = {
            "session_num": index,
            "x_request_id": f"a{index}",
            "conversation_id": f"c{index}",
            "turn_index": 0,
            "request_start_ns": sent,
            "request_ack_ns": sent + 30_000_000,
            "request_end_ns": sent + 91_000_000,
            "worker_id": "worker_1",
            "benchmark_phase": "profiling",
            "was_cancelled": False,
        }
        metrics: dict[str, Any] = {
            "input_sequence_length": {"value": 550, "unit": "tokens"},
            "time_to_first_token": {"value": 50.0, "unit": "ms"},
            "request_latency": {"value": 90.0, "unit": "ms"},
            "inter_chunk_latency": {"value": [20.0, 20.0], "unit": "ms"},
            "output_sequence_length": {"value": 3, "unit": "tokens"},
        }
        error = None
        if index == 19:
            metrics, error = (
                {"error_isl": {"value": 550, "unit": "tokens"}},
                {"code": 503, "type": "E", "message": "full"},
            )
        lines.append(json.dumps({"metadata": about, "metrics": metrics, "error": error}))
    path = folder / "profile_export.jsonl"
    path.write_text("\n".join(lines) + "\n")
    aggregates = {
        "aiperf_version": "0.5.0",
        "start_time": "2026-10-09T10:00:00",
        "input_config": {"endpoint": {"model_names": ["acme/tiny"]}, "loadgen": {"concurrency": 2}},
        "request_count": {"avg": 19, "unit": "requests"},
        "error_request_count": {"avg": 1, "unit": "requests"},
        "benchmark_duration": {"avg": 0.991, "unit": "sec"},
        "request_throughput": {"avg": 19.2, "unit": "requests/sec"},
        "output_token_throughput": {"avg": 57.5, "unit": "tokens/sec"},
        "request_latency": {"avg": 90.0, "p50": 90.0, "p90": 91.0, "p95": 92.0, "p99": 93.0, "unit": "ms"},
        "time_to_first_token": {"avg": 50.0, "p50": 50.0, "p90": 51.0, "p95": 52.0, "p99": 53.0, "unit": "ms"},
    }
    (folder / "profile_export_aiperf.json").write_text(json.dumps(aggregates))
    return path


def locust(folder: Path) -> Path:
    """50 requests in 10 s, 2 of which failed, from 5 users."""
    path = folder / "load_stats.csv"
    header = (
        "Type,Name,Request Count,Failure Count,Median Response Time,Average Response Time,Min Response Time,"
        "Max Response Time,Average Content Size,Requests/s,Failures/s,50%,66%,75%,80%,90%,95%,98%,99%,99.9%,99.99%,100%"
    )
    numbers = "50,2,120,130.5,80,400,10,5.0,0.2,120,130,140,150,200,300,350,400,400,400,400"
    path.write_text(f"{header}\nPOST,/v1/chat/completions,{numbers}\n,Aggregated,{numbers}\n")
    history = "Timestamp,User Count,Type,Name,Requests/s\n1760000000,1,,Aggregated,0\n1760000009,5,,Aggregated,5\n"
    (folder / "load_stats_history.csv").write_text(history)
    return path


def k6(path: Path) -> Path:
    """12 requests of 100 ms from 3 virtual users, the last a 503; the first byte came after 41 ms."""
    lines: list[dict[str, Any]] = [{"type": "Metric", "metric": "http_reqs", "data": {"type": "counter"}}]
    for index in range(12):
        time = f"2026-10-09T12:00:{index // 10:02d}.{(index % 10) * 100_000_000 + 23_456_789:09d}+02:00"
        tags = {"status": "503" if index == 11 else "200", "url": "http://127.0.0.1:8000/v1/chat/completions"}
        values = {
            "http_reqs": 1,
            "http_req_duration": 100.0,
            "http_req_blocked": 0.5,
            "http_req_sending": 1.0,
            "http_req_waiting": 40.0,
            "http_req_receiving": 59.0,
            "http_req_failed": int(index == 11),
        }
        lines += [
            {"type": "Point", "metric": name, "data": {"time": time, "value": value, "tags": tags}}
            for name, value in values.items()
        ]
    lines.append({"type": "Point", "metric": "vus", "data": {"time": "2026-10-09T10:00:01Z", "value": 3, "tags": {}}})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def k6_summary(path: Path) -> Path:
    metrics = {
        "http_reqs": {"count": 120, "rate": 12.0},
        "http_req_duration": {"avg": 100.0, "min": 80.0, "med": 98.0, "max": 300.0, "p(90)": 120.0, "p(95)": 150.0},
        "http_req_failed": {"passes": 6, "fails": 114, "value": 0.05},
        "vus_max": {"value": 3, "min": 3, "max": 3},
    }
    path.write_text(json.dumps({"metrics": metrics, "root_group": {}}))
    return path
