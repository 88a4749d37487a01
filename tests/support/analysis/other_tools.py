"""Small results of other tools, written by hand, whose numbers can be checked by hand."""

import json
from pathlib import Path
from typing import Any

import yaml

START = 1_760_000_000.0  # Unix time, seconds
REQUESTS = 40


def guidellm(path: Path, failed: int = 0, kept: int = REQUESTS) -> Path:
    """Write a result of four streams. Requests are sent 0.25 s apart; TTFT is 0.2 s, then 9 tokens come in 0.9 s."""

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


def aiperf(path: Path, failed: int = 0, cancelled: int = 0) -> Path:
    """Write single requests, each sent 5 ms after it was due. TTFT is 0.2 s, 9 tokens take 0.9 s, the end 10 ms."""

    def line(index: int) -> dict[str, Any]:
        start = round(START * 1e9) + index * 1_200_000_000
        metadata = {
            "x_request_id": f"r{index}",
            "worker_id": "worker_1",
            "conversation_id": f"c{index}",
            "turn_index": 0,
            "credit_issued_ns": start - 5_000_000,
            "request_start_ns": start,
            "request_end_ns": start + 1_110_000_000,
            "benchmark_phase": "profiling",
            "was_cancelled": index >= REQUESTS + failed,
        }
        durations: dict[str, Any] = {
            "time_to_first_token": 200.0,
            "request_latency": 1100.0,
            "inter_chunk_latency": [100.0] * 9,
        }
        counts: dict[str, Any] = {
            "input_sequence_length": 100,
            "output_sequence_length": 9,
            "usage_completion_tokens": 10,
        }
        if index >= REQUESTS:
            durations, counts = {}, {}
        metrics = {name: {"value": value, "unit": ""} for name, value in (durations | counts).items()}
        error = {"error": {"code": 503, "message": "queue full"}} if REQUESTS <= index < REQUESTS + failed else {}
        return {"metadata": metadata, "metrics": metrics} | error

    lines = [line(index) for index in range(REQUESTS + failed + cancelled)]
    warm_up = line(0)
    warm_up["metadata"] |= {"benchmark_phase": "warmup"}
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (warm_up, *lines)))
    return path


def vllm_bench(path: Path, **changes: Any) -> Path:
    """Write a result of four requests at a time, with a TTFT of 0.1 s and then 4 gaps of 0.05 s.

    `changes` replace fields; `None` leaves one out.
    """
    document: dict[str, Any] = {
        "date": "20261001-120000",
        "backend": "vllm",
        "model_id": "acme/tiny",
        "num_prompts": REQUESTS,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 4,
        "completed": REQUESTS,
        "total_input_tokens": 100 * REQUESTS,
        "request_throughput": REQUESTS / 3.3,
        "input_lens": [100] * REQUESTS,
        "output_lens": [5] * REQUESTS,
        "ttfts": [0.1] * REQUESTS,
        "itls": [[0.05] * 4] * REQUESTS,
        "latencies": [0.3] * REQUESTS,
        "start_times": [5.0 + 0.3 * (index // 4) for index in range(REQUESTS)],
        "errors": [""] * REQUESTS,
    }
    document |= changes
    path.write_text(json.dumps({name: value for name, value in document.items() if value is not None}))
    return path


def benchmark_report(path: Path, tool: str = "inference-perf", stage: int = 0, **changes: Any) -> Path:
    """Write a report in llm-d's format as YAML: 100 requests, TTFT p50 0.2 s, in milliseconds like vLLM's converter.

    `changes` replace fields of `requests`, `latency` or `load`, or the `version`.
    """

    def statistics(units: str, p50: float) -> dict[str, Any]:
        values = {"mean": p50, "stddev": 0.1 * p50, "min": 0.5 * p50, "max": 2 * p50, "p10": 0.6 * p50}
        return {"units": units} | values | {"p50": p50, "p90": 1.2 * p50, "p95": 1.3 * p50, "p99": 1.5 * p50}

    latency = {
        "time_to_first_token": statistics("ms", 200.0),
        "time_per_output_token": statistics("ms/token", 20.0),
        "inter_token_latency": statistics("s/token", 0.015),
        "request_latency": statistics("s", 0.9),
    }
    load = {
        "tool": tool, "tool_version": "1.0", "source": "random", "stage": stage, "rate_qps": 5.0 * (stage + 1),
        "input_seq_len": {"distribution": "fixed", "value": 128},
    }  # fmt: skip
    engine = {
        "kind": "inference_engine", "tool": "vllm", "tool_version": "0.20", "role": "replica", "replicas": 1,
        "model": {"name": "acme/tiny"},
        "accelerator": {"model": "H100", "count": 1, "parallelism": {"tp": 1}},
    }  # fmt: skip
    resources = {"gpu_utilization": {"units": "percent", "mean": 50.0, "max": 90.0}}
    document = {
        "version": changes.pop("version", "0.2.1"),
        "run": {
            "uid": f"{path.stem}-{stage}",
            "eid": "sweep",
            "time": {"start": f"2026-10-01T12:0{stage}:00Z", "duration": "PT20S"},
        },
        "scenario": {
            "stack": [{"metadata": {"label": "vllm-0", "cfg_id": "1"}, "standardized": engine, "native": {}}],
            "load": {"metadata": {}, "standardized": load | changes.pop("load", {}), "native": {}},
        },
        "results": {
            "request_performance": {
                "aggregate": {
                    "requests": {
                        "total": 100,
                        "failures": 0,
                        "input_length": {"units": "count", "mean": 128.0},
                        "output_length": {"units": "count", "mean": 32.0},
                    }
                    | changes.pop("requests", {}),
                    "latency": latency | changes.pop("latency", {}),
                    "throughput": {
                        "output_token_rate": {"units": "tokens/s", "mean": 150.0},
                        "request_rate": {"units": "queries/s", "mean": 4.75},
                    },
                }
            },
            "observability": {"components": [{"component_label": "vllm-0", "aggregate": resources}]},
        },
    }
    assert not changes
    path.write_text(yaml.safe_dump(document))
    return path
