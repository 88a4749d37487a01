"""What a fleet costs, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginebench.analysis.plan.prices import check_labels, read_prices, replica_price, token_cost
from enginebench.analysis.plan.settings import PlanSettings, parse_named_counts
from enginebench.records.view import Estimate, Missing
from enginebench.settings.schema import UserMistake


def test_costs_by_hand(tmp_path: Path) -> None:
    """Two GPUs at $3 an hour: 4 replicas cost $24 an hour; at 1,000 tokens/s a replica makes 3.6 million an hour."""
    (tmp_path / "prices.toml").write_text("[gpus.X]\nper_hour = 3.0\n")
    price = replica_price(PlanSettings(gpu=(("", "x"),), gpus=(("", "2"),), prices=tmp_path / "prices.toml"), "vllm")
    assert price is not None
    assert (price.per_hour, price.gpus, price.month(4)) == (6.0, 2, 24 * 730)
    cost = token_cost(price, Estimate(1000.0, 800.0, 1250.0, n=3))
    assert (cost.value, cost.low, cost.high) == pytest.approx((6 / 3.6, 6 / 4.5, 6 / 2.88))
    unbounded = token_cost(price, Estimate(1000.0, -10.0, 2010.0, n=3))
    assert unbounded.value == pytest.approx(6 / 3.6)
    assert (unbounded.low, unbounded.missing) == (None, Missing.FEW_REPEATS)
    assert token_cost(None, Estimate(1000.0)).value is None
    assert token_cost(price, Estimate(None, missing=Missing.FAILED)).missing is Missing.FAILED


def test_the_shipped_list_names_the_page_and_the_day_of_each_price() -> None:
    prices = read_prices(None)
    assert prices["H100"].per_hour > prices["L4"].per_hour > 0
    assert all("." in price.page and price.as_of is not None and price.verified for price in prices.values())


def test_a_price_whose_page_was_not_read_is_marked(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('[gpus.X]\nper_hour = 3\nunverified = true\nsource = "hearsay"\n')
    price = read_prices(tmp_path / "prices.toml")["X"]
    assert (price.page, price.as_of, price.verified) == ("hearsay", None, False)


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
    with pytest.raises(UserMistake, match="no GPU called `B9000`; it has H100"):
        check_labels(PlanSettings(gpu=(("", "B9000"),)), ["vllm"])


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
    prices = [replica_price(settings, label) for label in ("vllm", "other")]
    assert [price.gpus for price in prices if price is not None] == [2, 3]
