"""Points of a chart: the meaning of their marks, and the lines between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from enginebench.analysis.document import Point
from enginebench.analysis.verdict.slo_verdict import Status

STATUSES = {
    (Status.MET, True): "SLO met",
    (Status.MET, False): "met, not confirmed",
    (Status.MISSED, True): "missed",
    (Status.MISSED, False): "missed, not confirmed",
    (Status.NOT_MEASURED, False): "not measured",
}


def status_of(point: Point) -> tuple[Status, bool] | None:
    """Return status and confirmation: a load that was not measured is not confirmed."""
    if point.status is None:
        return None
    return point.status, point.confirmed and point.status is not Status.NOT_MEASURED


def statuses(points: Iterable[Point]) -> list[tuple[Status, bool]]:
    """List the statuses that the legend explains: none if every point meets the SLO."""
    used = {status for point in points if (status := status_of(point)) is not None}
    return [] if used <= {(Status.MET, True)} else [status for status in STATUSES if status in used]


def steps(places: Sequence[tuple[float, float, Point]], kind: str) -> str:
    """Draw the path that joins the points: on a Pareto front with the step at the slower speed, over time at the later
    time. A failed point breaks the line. Loads are not joined, because a line would look measured."""
    path, before = "", None
    for x, y, point in places:
        if point.failed:
            before = None
            continue
        if before is None:
            path += f"M{x:.1f} {y:.1f}"
        elif kind == "pareto":
            path += f"V{y:.1f}H{x:.1f}"
        else:
            path += f"H{x:.1f}V{y:.1f}"
        before = x
    return path


def mark(x: float, y: float, point: Point) -> str:
    if point.failed:
        return f'<path d="M{x:.1f} {y - 4:.1f}l4.5 8h-9z" class="mark"/>'
    cross = f'<path d="M{x - 3.5:.1f} {y - 3.5:.1f}l7 7m0 -7l-7 7" class="mark cross"/>'
    circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{4 if point.confirmed else 4.5}" class="mark{{}}"/>'
    if point.status is Status.MISSED:
        return cross if point.confirmed else circle.format(" hollow") + cross
    return circle.format("" if point.confirmed and point.status is not Status.NOT_MEASURED else " hollow")
