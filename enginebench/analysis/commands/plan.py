"""`enginebench plan`: how many replicas a peak needs, and what they cost."""

from __future__ import annotations

from typing import Annotated, Any

from enginebench.analysis.commands.output import Output, check_formats, deliver
from enginebench.analysis.commands.report import RUNS, read_runs
from enginebench.analysis.settings import PlanSettings, RunsSettings
from enginebench.settings.flags import AllowInvalid, AsJson, read_settings, with_flags
from enginebench.settings.schema import UserMistake


@with_flags(RunsSettings, PlanSettings)
def plan(
    names: Annotated[list[str] | None, RUNS] = None,
    output: Output = None,
    as_json: AsJson = False,
    allow_invalid: AllowInvalid = False,
    **flags: Any,
) -> None:
    """Plan the replicas for a peak load, from load tests of one replica.

    The answer is the peak divided by the measured capacity of one replica. Next to it is the result of a simulation:
    the engine's step times are fitted to the records, which gives the fewest replicas that meet every objective in 95 %
    of the simulated futures. It is shown only if the fit predicts each measured load from the others with an error of
    at most 25 %; otherwise the fit is poor, and the plan is made from the measured capacity alone.

    Runs of several engines, or of one with several settings, are planned separately and compared. A page (--output
    plan.html) has sliders for the peak, the limits of the SLO and prices.

    Exit code: 0 good, 1 no engine meets the objectives, 2 a usage error, an invalid run or different workloads, 3 too
    little was measured to plan.

    Examples:

      enginebench plan runs --peak 80 --slo ttft_p99=1s --output plan.html

      enginebench plan runs --peak 40/s --slo ttft_p95=500ms --slo tpot_p95=50ms --headroom 0.2 --price 1.80
    """
    folder: RunsSettings = read_settings(RunsSettings, flags)
    settings: PlanSettings = read_settings(PlanSettings, flags)
    check_formats(output or ())
    if settings.peak is None or not settings.slo:
        raise UserMistake("a plan needs a peak and an objective: --peak 80 --slo ttft_p99=1s.")
    from enginebench.analysis.frame import frame_of
    from enginebench.analysis.plan.replicas import separated
    from enginebench.analysis.plan.report import plan_document
    from enginebench.settings.console import stderr

    summaries = separated(read_runs(names or (), folder, settings.slo, need_requests=True))
    settings.check_labels([summary.label for summary in summaries])
    with stderr().status("Simulating …"):
        document = plan_document(frame_of(summaries), settings, allow_invalid=allow_invalid)
    deliver(document, output or (), as_json)
