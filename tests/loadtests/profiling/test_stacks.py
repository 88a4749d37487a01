"""Collapsed stacks, as profilers write them, and their flame graph."""

from xml.etree import ElementTree

import pytest

from enginebench.records.profile import Hot
from loadtests.harness.profiling.stacks import flame_graph, hottest, parse, parse_perf

SVG = "{http://www.w3.org/2000/svg}"


def test_the_innermost_frame_has_the_samples_and_every_caller_a_share_of_them() -> None:
    stacks = parse("main (a.py:1);work (a.py:9) 60\nmain (a.py:2);work (a.py:8);inner (b.py:3) 30\nmain (a.py:1) 10\n")
    assert hottest(stacks) == (
        Hot("work (a.py)", 0.6, 0.9),
        Hot("inner (b.py)", 0.3, 0.3),
        Hot("main (a.py)", 0.1, 1.0),
    )


def test_a_function_that_calls_itself_counts_once() -> None:
    (own,) = hottest(parse("f;f;f 7\n"))
    assert (own.share, own.inclusive) == (1.0, 1.0)


def test_samples_of_perf_are_read_from_the_outside_in() -> None:
    text = "\t          1af270 gemm::inner::h0123456789abcdef\n\t    7f0b [unknown]\n\t 12 main\n\n\t  1af270 main\n\n"
    assert parse_perf(text) == {("main", "gemm::inner"): 1, ("main",): 1}


@pytest.mark.parametrize("line", ["", "no number", "half;", ";;"])
def test_lines_that_are_none_are_skipped(line: str) -> None:
    assert not parse(line)


def test_a_frame_is_as_wide_as_its_share_and_says_so() -> None:
    picture = flame_graph(parse("main;a <x> 75\nmain;b 25\n"), "what & where")
    root = ElementTree.fromstring(picture)
    boxes = {
        title.text: box.find(f"{SVG}rect")
        for box in root.iter(f"{SVG}g")
        if (title := box.find(f"{SVG}title")) is not None
    }
    widths = {text: float(rect.attrib["width"]) for text, rect in boxes.items() if text and rect is not None}
    assert widths == {"all: 100 %": 1200, "main: 100 %": 1200, "a <x>: 75 %": 900, "b: 25 %": 300}
