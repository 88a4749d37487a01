"""Samples as columns: one value of each quantity a second, whatever names and labels the server gave it."""

from pathlib import Path

import pytest

from enginebench.analysis.data.telemetry import Increase, TelemetrySeries, read_telemetry
from enginebench.records.stage import SECOND
from enginebench.records.telemetry import TelemetrySample
from tests.support.analysis.synthetic import write_samples


def read(tmp_path: Path, *samples: TelemetrySample) -> TelemetrySeries:
    write_samples(tmp_path / "telemetry.jsonl", list(samples))
    return read_telemetry(tmp_path)


def test_a_series_has_instants_and_values_in_our_unit(tmp_path: Path) -> None:
    name = 'DCGM_FI_DEV_SM_CLOCK{gpu="0"}'
    telemetry = read(tmp_path, *(TelemetrySample(t, server={name: 1980.0 + t}) for t in (5, 3, 9)))
    instants, clock = telemetry.series("gpu_clock_hertz")
    assert instants.tolist() == [3, 5, 9]
    assert clock.tolist() == [1.983e9, 1.985e9, 1.989e9]
    assert telemetry.series("gpu_clock_hertz", 4, 9)[0].tolist() == [5]
    assert len(telemetry.series("gpu_power_watts")[0]) == 0, "absent, not zero"


def test_the_first_name_that_a_sample_has_counts(tmp_path: Path) -> None:
    """A server of ours with a DCGM exporter beside it publishes utilisation twice."""
    both = {"enginebench_gpu_utilization_ratio": 0.25, "DCGM_FI_DEV_GPU_UTIL": 75.0}
    later = {"DCGM_FI_DEV_GPU_UTIL": 75.0}
    telemetry = read(tmp_path, TelemetrySample(1, server=both), TelemetrySample(2, server=later))
    assert telemetry.series("gpu_utilisation")[1].tolist() == [0.25, 0.75]


def test_gpus_are_as_many_as_report_their_utilisation(tmp_path: Path) -> None:
    server = {f'enginebench_gpu_utilization_ratio{{gpu="{k}"}}': 0.0 for k in range(4)}
    telemetry = read(tmp_path, TelemetrySample(1, server=server), TelemetrySample(2))
    assert telemetry.series("gpus")[1].tolist() == [4]


@pytest.mark.parametrize(
    ("server", "throttled", "capped"),
    [
        pytest.param({'enginebench_gpu_throttled{gpu="0",reason="power_cap"}': 1.0}, [], [1.0], id="at its limit"),
        pytest.param(
            {
                'enginebench_gpu_throttled{gpu="0",reason="power_cap"}': 0.0,
                'enginebench_gpu_throttled{gpu="0",reason="hardware_thermal"}': 0.0,
                'enginebench_gpu_throttled{gpu="1",reason="hardware_thermal"}': 1.0,
            },
            *([1.0], [0.0]),
            id="the second GPU is hot",
        ),
        pytest.param({'DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="0"}': 1.0}, [0.0], [0.0], id="idle"),
        pytest.param({'DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="0"}': 68.0}, [1.0], [1.0], id="hot and at its limit"),
        pytest.param({'DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu="0"}': 128.0}, [1.0], [0.0], id="power brake"),
    ],
)
def test_throttling_by_our_server_and_by_dcgm(
    tmp_path: Path, server: dict[str, float], throttled: list[float], capped: list[float]
) -> None:
    telemetry = read(tmp_path, TelemetrySample(1, server=server))
    assert telemetry.series("gpu_throttled")[1].tolist() == throttled
    assert telemetry.series("gpu_power_capped")[1].tolist() == capped


def test_sixteen_bytes_are_kept_of_a_quantity_and_sample(tmp_path: Path) -> None:
    """A day's run has 86,400 samples of a hundred names each."""
    names = [f'enginebench_time_to_first_token_seconds_sum{{engine="{k}"}}' for k in range(50)]
    names += [f'enginebench_gpu_power_watts{{gpu="{k}"}}' for k in range(8)]
    samples = (TelemetrySample(t * SECOND, server=dict.fromkeys(names, 100.0)) for t in range(500))
    telemetry = read(tmp_path, *samples)
    (process,) = telemetry.processes.values()
    assert set(process.series) == {"gpu_power_watts"}
    assert sum(array.nbytes for series in process.series.values() for array in series) == 500 * 16
    assert telemetry.energy(0, 500 * SECOND) == Increase(499 * 800.0, 0, 499 * SECOND)


def test_a_gpu_that_is_missing_from_a_sample_adds_no_energy_of_its_lifetime(tmp_path: Path) -> None:
    """Two GPUs of 100 W; the second, which is older, does not answer at first and at 5 s."""

    def sample(t: int) -> TelemetrySample:
        counters = [1000.0 + 100 * t, 9e6 + 100 * t]
        seen = [counter for k, counter in enumerate(counters) if not k or t not in {0, 5}]
        names = [f'enginebench_gpu_energy_joules_total{{gpu="{k}"}}' for k in range(len(seen))]
        return TelemetrySample(t * SECOND, server=dict(zip(names, seen, strict=True)))

    telemetry = read(tmp_path, *map(sample, range(10)))
    energy = telemetry.energy(0, 10 * SECOND)
    assert energy is not None
    assert energy.amount == 8 * 200.0


def test_lines_that_are_no_samples_are_skipped(tmp_path: Path) -> None:
    good = TelemetrySample(t=5, users=3).to_line()
    (tmp_path / "telemetry-1.jsonl").write_text(good + '{"t": "soon"}\n{"t": 7, "server": {"a": null}}\n' + good[:9])
    telemetry = read_telemetry(tmp_path)
    assert (telemetry.last, telemetry.load_workers) == (5, {"1"})
    assert telemetry.killed["1"].users == 3
