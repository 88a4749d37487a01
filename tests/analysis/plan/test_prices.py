"""What a fleet costs, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginebench.analysis.plan.fleet import Attainment
from enginebench.analysis.plan.prices import bill, check_labels, cost_per_million, gpu_hours, read_prices
from enginebench.analysis.plan.requests import Band
from enginebench.analysis.plan.settings import PlanSettings, parse_named_counts
from enginebench.settings.schema import UserMistake

ALL = Band(1.0, 1.0, 1.0)


def busy(replicas: int) -> Attainment:
    """20 requests a second of 100 prompt and 50 output tokens, 10 in flight on each replica."""
    return Attainment(replicas, 60, 1.0, ALL, (ALL,), (), 10.0 * replicas, 1000.0, 2000.0, 20.0, ALL, ALL)


def test_the_bill_by_hand(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text(
        "[gpus.X]\nper_hour = 3.0\n[apis.hosted]\nper_million_prompt_tokens = 1.0\nper_million_output_tokens = 2.0\n"
    )
    prices = read_prices(tmp_path / "prices.toml")
    costs = bill(4, 2, prices.gpu("x"), busy(4), prices)
    assert costs.per_hour == 24
    assert costs.per_month == 24 * 730
    assert costs.per_thousand_requests == pytest.approx(24 / 72)  # 72 000 requests an hour
    assert costs.per_million_output_tokens == pytest.approx(24 / 3.6)  # 3.6 million output tokens an hour
    assert costs.per_million_output_tokens == cost_per_million(24, 1000)
    assert costs.requests_per_gpu_hour == 9000  # 72 000 an hour on 8 GPUs
    (hosted,) = costs.hosted
    assert hosted.per_thousand_requests == pytest.approx(0.2)  # 100 tokens at $1 and 50 at $2 a million
    assert hosted.break_even == pytest.approx(24 * 730 / 0.0002)
    assert not hosted.cheaper


def test_the_shipped_list_names_the_page_and_the_day_of_each_price() -> None:
    prices = read_prices(None)
    assert prices.gpu("h100") == prices.gpus["H100"] > prices.gpus["L4"] > 0
    sources = [*prices.gpu_sources.values(), *(api.source for api in prices.apis.values())]
    assert all("." in source.page and source.as_of is not None and source.verified for source in sources)
    assert str(prices.gpu_sources["A10G"]).endswith("2026-06-17")


def test_a_price_whose_page_was_not_read_is_marked(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('[gpus.X]\nper_hour = 3\nunverified = true\nsource = "hearsay"\n')
    assert str(read_prices(tmp_path / "prices.toml").gpu_sources["X"]) == "hearsay, UNVERIFIED"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("[gpus.X]\nhourly = 3", "is not a price list", id="a key of another name"),
        pytest.param("gpus = = 3", "is not a price list", id="no TOML"),
        pytest.param(None, "cannot be read", id="no file"),
    ],
)
def test_what_is_no_price_list_is_refused(tmp_path: Path, text: str | None, sentence: str) -> None:
    if text is not None:
        (tmp_path / "prices.toml").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        read_prices(tmp_path / "prices.toml")


def test_an_unknown_gpu_is_answered_with_the_choices() -> None:
    with pytest.raises(ValueError, match="no GPU called `B9000`; it has H100"):
        read_prices(None).gpu("B9000")


def test_a_price_of_an_engine_without_a_run_is_refused() -> None:
    """It would have no effect: a report would go without costs, and not say so."""
    labels = ["vllm (before)", "sglang"]
    for settings in (PlanSettings(price=(("", "2"),)), PlanSettings(price=(("vllm", "2"),), gpus=(("sglang", "2"),))):
        check_labels(settings, labels)
    with pytest.raises(UserMistake, match="--gpu vlm=…: there is no run of `vlm`; choose from vllm"):
        check_labels(PlanSettings(gpu=(("vlm", "H100"),)), labels)


@pytest.mark.parametrize("text", ["0", "0.5", "-1", "two", "vllm=0", "vllm="])
def test_a_replica_has_a_whole_number_of_gpus(text: str) -> None:
    with pytest.raises(
        UserMistake, match=f"--gpus is a whole number of GPUs, 1 or more, or LABEL=NUMBER, not `{text}`"
    ):
        parse_named_counts(text)
    settings = PlanSettings(price=(("", "6"),), gpus=parse_named_counts("3\nvllm=2"))
    assert [gpu_hours(settings, read_prices(None), label) for label in ("vllm", "other")] == [(2, 3.0), (3, 2.0)]
