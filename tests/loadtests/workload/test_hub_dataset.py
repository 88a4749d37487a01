"""Datasets by name, against a server that speaks the documented API of the dataset viewer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from enginebench.settings.schema import UserMistake
from loadtests.harness.scenario import Scenario, read
from loadtests.harness.workload import hub_dataset
from loadtests.harness.workload.datasets import dataset
from tests.support.servers.odd import Odd, OddServer, Request
from tests.support.servers.wire_script import Step, json_answer

SPLITS = {
    "o/one": {"default": {"train": 250}},
    "o/usual": {"default": {"train": 3, "test": 2}, "other": {"train": 1}},
    "o/large": {"main": {"test": 20_000}},
    "o/almost": {"default": {"train": 4950}},
    "o/cut": {"main": {"train": 3}},
    "o/several": {"a": {"x": 1, "y": 1}, "b": {"z": 1}},
    "o/busy": {"main": {"train": 1}},
}


def answer(request: Request) -> list[Step]:
    url = urlsplit(request.path)
    asked = {name: values[0] for name, values in parse_qs(url.query).items()}
    configs = SPLITS.get(asked["dataset"])
    if asked["dataset"] == "o/gated" and request.headers.get("authorization") == "Bearer a-token":
        configs = {"default": {"train": 1}}
    if configs is None:
        error = "The dataset does not exist, or is not accessible without authentication."
        return [json_answer("401 Unauthorized", {"error": error})]
    if asked["dataset"] == "o/busy" and request.number <= 2:
        return [json_answer("429 Too Many Requests", {"error": "Too many requests."})]
    if url.path == "/splits":
        named = [(config, split) for config, splits in configs.items() for split in splits]
        parts = [{"dataset": asked["dataset"], "config": config, "split": split} for config, split in named]
        return [json_answer("200 OK", {"splits": parts, "pending": [], "failed": []})]
    total, offset, length = configs[asked["config"]][asked["split"]], int(asked["offset"]), int(asked["length"])
    assert length <= 100
    cut = 1 if asked["dataset"] == "o/cut" else None
    rows = [
        {"row_idx": n, "row": {"prompt": f"row {n}"}, "truncated_cells": ["prompt"] if n == cut else []}
        for n in range(offset, min(offset + length, total))
    ]
    page = {"features": [], "rows": rows, "num_rows_total": total, "num_rows_per_page": 100}
    return [json_answer("200 OK", page)]


@pytest.fixture(autouse=True)
def viewer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[OddServer]:
    with OddServer(Odd(routes={"/splits": answer, "/rows": answer})) as server:
        monkeypatch.setattr(hub_dataset, "VIEWER", server.url)
        monkeypatch.setattr(hub_dataset, "PAUSES", (0.0, 0.0))
        monkeypatch.setattr(hub_dataset, "user_cache_path", lambda _: tmp_path)
        monkeypatch.setenv("HF_TOKEN", "")
        yield server


def texts(name: str) -> list[str]:
    requests = dataset(read(Scenario(), {"dataset": name}).dataset).requests
    return [text for request in requests for _, text in request.messages]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        pytest.param("hf:o/one", range(250), id="all pages of the only split"),
        pytest.param("hf:o/usual", range(3), id="the usual config and split"),
        pytest.param("hf:o/usual:default:test", range(2), id="a named split"),
        pytest.param("hf:o/several:b", range(1), id="the only split of a named config"),
        pytest.param("hf:o/cut", (0, 2), id="without shortened rows"),
        pytest.param("hf:o/busy", (0,), id="asked again after 429"),
        pytest.param("hf:o/large", [400 * page + row for page in range(50) for row in range(100)], id="spread pages"),
        pytest.param("hf:o/almost", range(4950), id="all of a few less than that many pages"),
    ],
)
def test_rows_are_those_of_the_split_and_are_kept(name: str, rows: list[int], viewer: OddServer) -> None:
    assert texts(name) == [f"row {number}" for number in rows]
    asked = len(viewer.asked)
    hub_dataset.hub_rows(name)
    assert len(viewer.asked) == asked, "from the cache"


def test_a_token_opens_a_gated_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserMistake, match=r"hf:o/gated does not exist, is private or is gated: .* HF_TOKEN"):
        texts("hf:o/gated")
    monkeypatch.setenv("HF_TOKEN", "a-token")
    assert texts("hf:o/gated") == ["row 0"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param("hf:o/none", "hf:o/none does not exist", id="unknown"),
        pytest.param("hf:", "hf:OWNER/NAME, optionally with :CONFIG:SPLIT, not `hf:`", id="no name"),
        pytest.param("hf:o/several", "has several configs, and names none; choose from a, b", id="configs"),
        pytest.param("hf:o/several:a", "has several splits, and names none; choose from x, y", id="splits"),
        pytest.param("hf:o/one:defualt", "has no config `defualt`; did you mean `default`", id="wrong config"),
        pytest.param("hf:o/one:default:tset", "has no split `tset`; choose from train", id="wrong split"),
    ],
)
def test_a_wrong_name_gets_a_sentence(name: str, sentence: str) -> None:
    with pytest.raises(UserMistake, match=sentence):
        texts(name)


def test_a_machine_without_a_network_gets_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hub_dataset, "VIEWER", "http://127.0.0.1:1")
    with pytest.raises(UserMistake, match=r"cannot be reached \(.*refused\): download it elsewhere and give"):
        texts("hf:o/one")
    assert not list(tmp_path.iterdir())
