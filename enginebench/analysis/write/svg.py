"""Charts as SVG: the page, the `.svg` file and pictures in Markdown are the same drawing.

Points are joined by steps, except between two loads, where a line would look measured. Bars are 95 % intervals. A
filled point meets the SLO, a hollow point is not confirmed, and a cross misses the SLO. Colours are variables of the
page, so that one drawing serves light and dark screens; every part of a series has the class of its engine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from enginebench.analysis.document import TIMES_LIMIT, Figure, Point, Series
from enginebench.analysis.write.cells import clean, load_number
from enginebench.analysis.write.marks import STATUSES, mark, status_of, statuses, steps
from enginebench.analysis.write.palette import slots_of, variables
from enginebench.analysis.write.phrases import limit_title
from enginebench.analysis.write.scale import FONT, LINE, Box, Kind, Labels, Scale, scale_of, spread, width_of
from enginebench.records.formatting import INFINITE, ShownUnit, column_unit, format_value

WIDTH, HEIGHT = 440, 320  # also legible on a phone
TOP, BOTTOM = 26, 40
MAX_NAME = 16  # characters of a series' name
LOGARITHMIC = 20  # an axis whose values span more than this factor is logarithmic
MAX_DODGE = 22  # pixels between the first and the last engine at one load
LEGEND_GAP = 22  # pixels of a mark and the space around it
BEYOND = 2  # intervals stretch the axis to at most this factor of the largest value


def svg(figure: Figure, slots: Mapping[str, int] | None = None, standalone: bool = False) -> str:
    """Draw a chart. `slots` are the engines' colours. A `standalone` picture includes its title and colours."""
    slots = slots_of(series.name for series in figure.series) if slots is None else slots
    drawing = _Drawing.from_figure(figure, slots)
    top = LINE + 6 if standalone else 0
    title = f'<text x="2" y="{FONT - top}" font-weight="600">{_text(figure.title)}</text>' if standalone else ""
    style = f"<style>{_colours()}{style_sheet()}</style>" if standalone else ""
    body = "\n".join(drawing.parts())
    size = f'viewBox="0 {-top} {WIDTH} {HEIGHT + top}" width="{WIDTH}" height="{HEIGHT + top}"'
    page = f'<rect y="{-top}" width="100%" height="100%" fill="var(--page)"/>' if standalone else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" aria-label="{_text(figure.title)}" {size}>'
        f"{style}{page}{title}\n{body}\n</svg>\n"
    )


def style_sheet() -> str:
    """Return the rules for all charts, which a page includes once."""
    return (files("enginebench.analysis.write") / "templates" / "chart.css").read_text(encoding="utf-8")


def _colours() -> str:
    light, dark = (
        "".join(f"--{name}:{colour};" for name, colour in variables(side).items()) for side in ("light", "dark")
    )
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _text(text: str) -> str:
    return escape(clean(text))


@dataclass(frozen=True)
class _Drawing:
    figure: Figure
    slots: Mapping[str, int]
    series: tuple[Series, ...]
    unit: ShownUnit  # of the vertical axis
    x: Scale
    y: Scale
    plot: Box
    labels: Labels

    @staticmethod
    def from_figure(figure: Figure, slots: Mapping[str, int]) -> _Drawing:
        series = tuple(_drawable(part, figure.kind) for part in figure.series)
        series = tuple(part for part in series if part.points)
        points = [point for part in series for point in part.points]
        heights = [point.y for point in points if point.y is not None and math.isfinite(point.y)]
        unit = column_unit(figure.y.unit, [*heights, figure.limit])
        limits = [] if figure.limit is None else [figure.limit]
        values = [value * unit.scale for value in (*heights, *limits, *_interval_ends(points, heights))]
        among_failed = any(point.failed for point in points)
        may_be_log = figure.kind in {"load", "distribution"} or figure.y.unit == "s"
        kind = _kind([*heights, *limits]) if may_be_log else "linear"
        bottom, top = HEIGHT - BOTTOM - (LINE + 2 if statuses(points) else 0), TOP + (LINE if among_failed else 0)
        vertical = scale_of(values, bottom, top, kind)
        ticks = [_tick(tick) for tick in vertical.ticks()] + [INFINITE] * among_failed
        left = 12 + max(map(width_of, ticks), default=0)
        names = [width_of(_name(part)) for part in series] if len(series) > 1 else [0.0]
        right = WIDTH - max(names, default=0.0) - (26 if len(series) > 1 else 12)
        plot = Box(left, TOP, right, vertical.start)
        return _Drawing(figure, slots, series, unit, _across(figure, points, plot), vertical, plot, Labels(plot))

    def parts(self) -> Iterator[str]:
        """Draw the parts of the chart; later parts cover earlier ones."""
        yield from self._spans()
        yield from self._vertical_axis()
        yield from self._horizontal_axis()
        for index, part in enumerate(self.series):
            for x, y, _ in self._places(index, part):
                self.labels.point(x, y)
        limit = list(self._limit())
        for index, part in enumerate(self.series):
            slot = self.slots.get(part.name, index)
            yield f'<g class="s{slot}" style="color:var(--e{slot})">'
            yield from self._series(index, part)
            yield "</g>"
        yield from limit
        yield from self._names()
        yield from self._marks()
        yield from self._legend()

    def _vertical_axis(self) -> Iterator[str]:
        plot, axis = self.plot, self.figure.y
        unit = self.unit.name if self.unit.name not in {"", axis.title, TIMES_LIMIT} else ""
        title = f"{axis.title}, {unit}" if unit else axis.title
        title += " (logarithmic)" if self.y.kind == "log" else ""
        yield f'<text x="2" y="{FONT}" class="muted">{_text(title)}</text>'
        for tick in self.y.ticks():
            y = self.y(tick)
            yield f'<line x1="{plot.left:.1f}" x2="{plot.right:.1f}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            yield self._number(plot.left - 6, y + 4, _tick(tick), "end")
        if self.y.end > TOP:
            yield self._number(plot.left - 6, TOP + 6, INFINITE, "end")

    def _horizontal_axis(self) -> Iterator[str]:
        plot, axis = self.plot, self.figure.x
        yield f'<line x1="{plot.left:.1f}" x2="{plot.right:.1f}" y1="{plot.bottom}" y2="{plot.bottom}" class="axis"/>'
        ticks = self._ticks()
        row = Labels(Box(0, 0, WIDTH, HEIGHT))
        for value, text in [*ticks[:1], *ticks[:0:-1]]:  # the first and the last are kept
            x = self.x(value)
            if row.place(f"{text} ", [(x - width_of(text) / 2, plot.bottom + FONT + 6)]) is not None:
                yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{plot.bottom}" y2="{plot.bottom + 4}" class="axis"/>'
                yield self._number(x, plot.bottom + FONT + 6, text, "middle")
        unit = f", {axis.unit}" if axis.unit and axis.unit not in {axis.title, "share"} else ""
        x, title = (plot.left + plot.right) / 2, _text(axis.unit if axis.title == "load" else f"{axis.title}{unit}")
        yield self._number(x, plot.bottom + 2 * LINE + 5, title, "middle")

    def _ticks(self) -> list[tuple[float, str]]:
        """Return ticks at the loads that were measured, else at round numbers."""
        axis = self.figure.x
        if axis.names:
            return [(float(index), clean(name)) for index, name in enumerate(axis.names)]
        if self.figure.kind == "load":
            return [(x, load_number(x)) for x in sorted({point.x for part in self.series for point in part.points})]
        if self.x.kind == "tail":
            return [(share, f"p{100 * share:g}" if share else "least") for share in self.x.ticks()]
        return [(tick, _tick(tick)) for tick in self.x.ticks()]

    def _number(self, x: float, y: float, text: str, anchor: str) -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="muted">{_text(text)}</text>'

    def _spans(self) -> Iterator[str]:
        plot = self.plot
        for span in self.figure.spans:
            left, right = self.x(span.start), self.x(span.end)
            size = f'x="{left:.1f}" width="{max(right - left, 1):.1f}" y="{plot.top}" height="{plot.bottom - plot.top}"'
            title = clean(span.title)
            yield f'<rect {size} class="span {span.tone.value}"><title>{_text(title)}</title></rect>'
            if width_of(title) <= right - left - 4:
                box = self.labels.place(title, [(left + 4, plot.top + FONT + 1)], needed=True)
                if box is not None:
                    yield _label(box, title, "muted")

    def _limit(self) -> Iterator[str]:
        if self.figure.limit is None:
            return
        y, plot = self.y(self.figure.limit * self.unit.scale), self.plot
        yield f'<line x1="{plot.left:.1f}" x2="{plot.right:.1f}" y1="{y:.1f}" y2="{y:.1f}" class="limit"/>'
        text = limit_title(self.figure, self.unit)
        places = [plot.left + 4, plot.right - width_of(text) - 4, (plot.left + plot.right - width_of(text)) / 2]
        box = self.labels.place(text, [(x, at) for x in places for at in (y - 5, y + FONT + 3)], needed=True)
        if box is not None:
            yield _label(box, text, "limit-text halo")

    def _places(self, index: int, series: Series) -> list[tuple[float, float, Point]]:
        """Return the pixels of each point; engines at one load are next to each other."""
        count = len(self.series)
        shift = (index - (count - 1) / 2) * min(6, MAX_DODGE / max(count - 1, 1)) if self.figure.kind == "load" else 0.0
        return [(self.x(point.x) + shift, self._height(point), point) for point in series.points]

    def _height(self, point: Point) -> float:
        if point.failed or point.y is None:
            return TOP + 2
        return self.y(point.y * self.unit.scale)

    def _series(self, index: int, series: Series) -> Iterator[str]:
        places, kind = self._places(index, series), self.figure.kind
        dots = kind == "time" and self.figure.y.unit == "s"
        if dots:
            pixels = dict.fromkeys((round(x, 1), round(y, 1)) for x, y, _ in places)
            yield from (f'<circle cx="{x}" cy="{y}" r="1.8" class="dot"/>' for x, y in pixels)
            return
        full = kind in {"distribution", "time"}
        if kind != "load":
            yield f'<path d="{steps(places, kind)}" class="step {kind}{" full" if full else ""}"/>'
        if full:
            return
        for x, y, point in places:
            yield "<g>"
            yield f"<title>{_text(self._hover_text(series, point))}</title>"
            low, high = point.low, point.high
            if low is not None and high is not None and low < high and not point.failed:
                ends = (self.y(low * self.unit.scale), self.y(min(high, 1e12) * self.unit.scale))
                yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{ends[0]:.1f}" y2="{ends[1]:.1f}" class="bar"/>'
            yield mark(x, y, point)
            yield "</g>"
            if kind == "pareto" and point.label:
                yield from self._point_label(x, y, clean(point.label))

    def _point_label(self, x: float, y: float, text: str) -> Iterator[str]:
        width = width_of(text)
        anchors = [(x + 6, y - 5), (x - width - 6, y - 5), (x + 6, y + FONT + 3), (x - width - 6, y + FONT + 3)]
        box = self.labels.place(text, anchors)
        if box is not None:
            yield _label(box, text, "halo name")

    def _hover_text(self, series: Series, point: Point) -> str:
        axis = self.figure.y
        value = INFINITE if point.failed else format_value(point.y, axis.unit)
        unit = "" if axis.unit in {"s", "B", "share"} else f" {axis.unit}"
        place = clean(point.label) or f"{load_number(point.x)} {self.figure.x.unit}"
        ends = [format_value(end, axis.unit) for end in (point.low, point.high) if end is not None]
        interval = f" [{', '.join(ends)}]" if len(ends) == 2 else ""
        status = status_of(point)
        return f"{series.name} at {place}: {value}{unit}{interval}{'' if status is None else f', {STATUSES[status]}'}"

    def _names(self) -> Iterator[str]:
        """Write each engine's name at the right, at the height of its last point, with a thin line to the point."""
        if len(self.series) < 2:
            return
        lasts = [self._places(index, part)[-1] for index, part in enumerate(self.series)]
        places = spread([y for _, y, _ in lasts], LINE - 1, TOP + 4, self.plot.bottom - 4)
        for index, (part, (x, y, _), place) in enumerate(zip(self.series, lasts, places, strict=True)):
            slot, right = self.slots.get(part.name, index), self.plot.right
            line = f"M{x + 6:.1f} {y:.1f}L{right + 10:.1f} {place:.1f}h6"
            yield f'<g class="s{slot}" style="color:var(--e{slot})"><path d="{line}" class="leader"/>'
            yield f'<text x="{right + 19:.1f}" y="{place + 4:.1f}" class="name">{_text(_name(part))}</text></g>'

    def _marks(self) -> Iterator[str]:
        plot = self.plot
        for event in self.figure.marks:
            x, text = self.x(event.x), clean(event.label)
            line = f'x1="{x:.1f}" x2="{x:.1f}" y1="{plot.top}" y2="{plot.bottom}"'
            yield f'<line {line} class="axis dotted"/>'
            rows = [plot.top + FONT + 1 + LINE * k for k in range(4)]
            anchors = [(left, row) for row in rows for left in (x + 4, x - width_of(text) - 4)]
            box = self.labels.place(text, anchors, needed=True)
            if box is not None:
                yield _label(box, text, "halo")

    def _legend(self) -> Iterator[str]:
        """Explain the marks if they differ."""
        shown = statuses(point for part in self.series for point in part.points)
        x = max(0.0, min(self.plot.left, WIDTH - sum(width_of(STATUSES[status]) + LEGEND_GAP for status in shown)))
        for status, confirmed in shown:
            text, point = STATUSES[status, confirmed], Point(0, 0, status=status, confirmed=confirmed)
            yield f'<g color="var(--muted)">{mark(x + 4, HEIGHT - 6, point)}</g>'
            yield f'<text x="{x + 13:.1f}" y="{HEIGHT - 2}" class="muted">{text}</text>'
            x += width_of(text) + LEGEND_GAP


def _across(figure: Figure, points: Sequence[Point], plot: Box) -> Scale:
    """Make the horizontal axis. Loads have room at both ends for engines next to each other."""
    values = [point.x for point in points] or [0.0]
    if figure.kind == "distribution":
        return scale_of(values, plot.left, plot.right, "tail")
    if figure.kind == "load":
        edge = MAX_DODGE / 2 + 8
        low, high = min(values), max(values)
        kind = "linear" if figure.x.names or low <= 0 else _kind(values)
        return Scale(low, high, plot.left + edge, plot.right - edge, kind)
    values += [end for span in figure.spans for end in (span.start, span.end)]
    values += [event.x for event in figure.marks]
    return scale_of(values, plot.left, plot.right, room=1.02)


def _kind(values: Sequence[float]) -> Kind:
    positive = [value for value in values if value > 0]
    return "log" if positive and max(positive) > LOGARITHMIC * min(positive) else "linear"


def _interval_ends(points: Sequence[Point], heights: Sequence[float]) -> list[float]:
    """Return the ends of intervals, cut off where they would stretch the axis too far."""
    most = BEYOND * max(heights, default=0.0)
    ends = [end for point in points for end in (point.low, point.high) if end is not None and math.isfinite(end)]
    return [min(end, most) for end in ends if end > 0]


def _label(box: Box, text: str, kind: str) -> str:
    return f'<text x="{box.left:.1f}" y="{box.bottom - 2:.1f}" class="{kind}">{_text(text)}</text>'


def _drawable(series: Series, kind: str) -> Series:
    """Leave out points without a height, and the largest value of a distribution, which is no percentile."""
    points = [point for point in series.points if point.y is not None]
    return Series(series.name, tuple(point for point in points if kind != "distribution" or point.x < 1))


def _name(series: Series) -> str:
    name = clean(series.name)
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME // 2]}…{name[1 - MAX_NAME // 2 :]}"


def _tick(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"
