"""Collapsed stacks, the common format of profilers: `outer;inner 42`, and the flame graph of them (Gregg 2016)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from zlib import crc32

from enginebench.records.formatting import format_share
from enginebench.records.profile import Hot

LINE = re.compile(r":\d+\)")  # of a frame such as `forward (linear.py:134)`
HASH = re.compile(r"::h[0-9a-f]{16}\b")  # of a Rust symbol
WIDTH, ROW, MARGIN = 1200, 17, 10  # pixels
LEAST = 0.0008  # share of the width below which a frame is not drawn
TEXT = 6.6  # pixels of a character
MOST = 30  # rows of a table

Stacks = Mapping[tuple[str, ...], float]
"""By the frames from the outermost in: samples, seconds or bytes."""


def parse(text: str) -> Stacks:
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in text.splitlines():
        names, _, amount = line.rpartition(" ")
        if names and amount.isdigit():
            stacks[tuple(HASH.sub("", LINE.sub(")", name)) for name in names.split(";"))] += int(amount)
    return stacks


def parse_perf(text: str) -> Stacks:
    """What `perf script -F ip,sym` writes: a sample's frames from the innermost out, an empty line behind each."""
    stacks: Counter[tuple[str, ...]] = Counter()
    for sample in re.split(r"\n\s*\n", text):
        names = [line.split(None, 1)[1].strip() for line in sample.splitlines() if len(line.split(None, 1)) == 2]
        frames = tuple(HASH.sub("", name) for name in reversed(names) if name != "[unknown]")
        if sample.strip():
            stacks[frames or ("[unknown]",)] += 1
    return stacks


def hottest(stacks: Stacks) -> tuple[Hot, ...]:
    """The innermost frames by their own share."""
    own, inclusive, total = Counter[str](), Counter[str](), sum(stacks.values())
    for frames, amount in stacks.items():
        own[frames[-1]] += amount  # type: ignore[assignment]
        for name in set(frames):
            inclusive[name] += amount  # type: ignore[assignment]
    return tuple(Hot(name, amount / total, inclusive[name] / total) for name, amount in own.most_common(MOST))


@dataclass
class _Frame:
    name: str
    amount: float = 0.0
    inner: dict[str, _Frame] = field(default_factory=dict)


def flame_graph(stacks: Stacks, title: str) -> str:
    """An SVG: each frame as wide as its share, on the frame that called it; pointing at one shows it in full."""
    root = _Frame("all")
    for frames, amount in stacks.items():
        at = root
        at.amount += amount
        for name in frames:
            at = at.inner.setdefault(name, _Frame(name))
            at.amount += amount
    placed = list(_placed(root, 0.0, 1.0, 0))
    height = ROW * (max(depth for *_, depth in placed) + 1)
    boxes = "".join(_box(*each, height, root.amount) for each in placed)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 2 * MARGIN} {height + 48}" '
        'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11">'
        '<style>rect{stroke:#fff;stroke-width:.6}g:hover rect{stroke:#000}</style><rect width="100%" height="100%" '
        f'fill="#fff" stroke="none"/><text x="{MARGIN}" y="24" font-size="15" font-family="system-ui, sans-serif">'
        f'{escape(title)}</text><g transform="translate({MARGIN} 38)">{boxes}</g></svg>\n'
    )


def _placed(frame: _Frame, start: float, width: float, depth: int) -> Iterator[tuple[_Frame, float, float, int]]:
    yield frame, start, width, depth
    for inner in sorted(frame.inner.values(), key=lambda one: one.name):
        share = width * inner.amount / frame.amount
        if share >= LEAST:
            yield from _placed(inner, start, share, depth + 1)
        start += share


def _box(frame: _Frame, start: float, width: float, depth: int, height: float, total: float) -> str:
    shade = crc32(frame.name.encode()) % 60  # the same function has the same colour everywhere
    x, y, wide = start * WIDTH, height - (depth + 1) * ROW, width * WIDTH
    fits = int((wide - 6) / TEXT)
    name = frame.name if len(frame.name) <= fits else frame.name[: fits - 1] + "…" if fits > 3 else ""
    text = f'<text x="{x + 3:.1f}" y="{y + 12:.1f}">{escape(name)}</text>' if name else ""
    return (
        f"<g><title>{escape(frame.name)}: {format_share(frame.amount / total)}</title>"
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{ROW - 1}" '
        f'fill="hsl({18 + shade * 0.6:.0f} 85% {64 + shade % 20 * 0.7:.0f}%)"/>{text}</g>'
    )
