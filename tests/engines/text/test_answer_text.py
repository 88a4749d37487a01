"""Stop strings end an answer wherever its text is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.text.answer_text import StopStrings


@pytest.mark.parametrize(
    ("pieces", "stops", "shown", "met"),
    [
        pytest.param(["one ", "two"], [], "one two", False, id="without stop strings all text passes"),
        pytest.param(["one ", "two ", "three"], ["two"], "one ", True, id="a stop string in one piece"),
        pytest.param(["one t", "w", "o three"], ["two"], "one ", True, id="a stop string over three pieces"),
        pytest.param(["one t", "en"], ["two"], "one ten", False, id="what only began like one is shown after all"),
        pytest.param(["abcabd"], ["abd"], "abc", True, id="a false start before the true one"),
        pytest.param(["one t"], ["two"], "one t", False, id="the end of the answer ends the waiting"),
        pytest.param(["a b c"], ["c", "b"], "a ", True, id="the earliest of several counts"),
        pytest.param(["\n", "\n", "x"], ["\n\n"], "", True, id="two line ends in two pieces"),
        pytest.param(["one"], [""], "one", False, id="an empty stop string stops nothing"),
    ],
)
def test_stop_strings(pieces: list[str], stops: list[str], shown: str, met: bool) -> None:
    guard = StopStrings(stops)
    *before, last = pieces
    sent = "".join(map(guard.add, before))
    ready, finish = guard.step(last, "length")
    assert (sent + ready, finish) == (shown, "stop" if met else "length")
    assert guard.met is met


@given(st.lists(st.text("ab ", min_size=1, max_size=3), max_size=8), st.lists(st.text("ab", min_size=1), max_size=3))
def test_stops_are_found_however_the_text_is_cut(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    first = min((whole.find(stop) for stop in stops if stop in whole), default=None)
    passed = StopStrings(stops)
    sent = "".join(map(passed.add, pieces))
    if first is None:
        assert (sent + passed.step("", "length")[0], passed.met) == (whole, False)
    else:
        assert passed.met
        assert not any(stop in sent for stop in stops)
        assert whole.startswith(sent)


@pytest.mark.parametrize(
    "stop", ["a" * 255 + "b", "a" * 128 + "b" * 128, "ab" * 128], ids=["one letter", "two halves", "pairs"]
)
def test_a_stop_string_that_seems_to_begin_everywhere_holds_back_no_more_than_itself(stop: str) -> None:
    guard, sent = StopStrings([stop]), ""
    for index in range(2_000):
        sent += guard.add("a")
        assert index + 1 - len(sent) < len(stop)
    assert sent + guard.step("", "length")[0] == "a" * 2_000
