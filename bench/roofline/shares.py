"""How much of the device an engine uses: bytes and operations that a measure needs at least, over what was measured
that the device can do (the roofline of Williams et al. 2009)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from bench.result.document import Series, Share
from bench.roofline.limits import Limit
from bench.roofline.model_cost import ModelCost


def share_of(series: Series, dtype: str, cost: ModelCost | None, limits: Sequence[Limit | None]) -> Share | None:
    """Medians over the rounds, each by the limits of the same round. `None` for a measure without such a bound.

    Of memory, the weights alone are counted, which a step reads once for its whole batch; keys and values come on top.
    """
    if cost is None:
        return None
    pairs = [
        (median(samples), limit)
        for samples, limit in zip(series.rounds, limits, strict=True)
        if samples and limit is not None
    ]
    needs = [_needs(series, value, dtype, cost) for value, _ in pairs]
    if not needs or needs[0] is None:
        return None
    bandwidths, flops = [], []
    for need, (_, limit) in zip(needs, pairs, strict=True):
        assert need is not None
        if need[0] is not None and limit.bandwidth:
            bandwidths.append(need[0] / limit.bandwidth)
        if limit.flops:
            flops.append(need[1] / limit.flops)
    return Share(median(bandwidths) if bandwidths else None, median(flops) if flops else None)


def _needs(series: Series, value: float, dtype: str, cost: ModelCost) -> tuple[float | None, float] | None:
    """Bytes and operations per second."""
    measure, read = series.measure, cost.bytes_per_step(dtype)
    if measure.family == "decode":
        return None if read is None else read / value, cost.decode_flops / value
    if measure.family == "batch" and measure.name.endswith("decode"):
        assert measure.size is not None
        return None if read is None else read * value / measure.size, cost.decode_flops * value
    if measure.family == "prefill":
        assert measure.size is not None
        return None if read is None else read / value, cost.prefill_flops(measure.size) / value
    return None
