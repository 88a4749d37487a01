"""From ids to text: every character whole, every stop string left out, wherever the pieces are cut."""

import random

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel

from engines.text.text import Detokeniser, StopStrings


@pytest.fixture(scope="module")
def by_bytes() -> Tokenizer:
    """One token per byte: the worst case for anything that is not ASCII."""
    letters = sorted(ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: id for id, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    return tokenizer


@pytest.mark.parametrize("text", ["plain words", "naïve café", "日本語", "🚀🎉", "a🚀b日c", "é" * 50])
def test_no_character_is_ever_cut(by_bytes: Tokenizer, text: str) -> None:
    ids = by_bytes.encode(text).ids
    detokeniser = Detokeniser(by_bytes, [])
    pieces = [detokeniser.add(id) for id in ids]
    assert "".join(pieces) + detokeniser.rest() == text
    assert not any("�" in piece for piece in pieces)
    assert [piece for piece in pieces if piece] == list(text), "each character comes with its last byte"


def test_a_character_that_never_ends_is_shown_as_such_at_the_end(by_bytes: Tokenizer) -> None:
    first, *_ = by_bytes.encode("🚀").ids
    detokeniser = Detokeniser(by_bytes, [])
    assert detokeniser.add(first) == ""
    assert detokeniser.rest() == "�"
    assert detokeniser.rest() == ""


def test_bytes_that_are_no_character_do_not_hold_up_what_follows(by_bytes: Tokenizer) -> None:
    broken = by_bytes.encode("🚀").ids[0]
    detokeniser = Detokeniser(by_bytes, [])
    pieces = [detokeniser.add(broken) for _ in range(12)]
    assert sum(bool(piece) for piece in pieces) == 3, "every fourth one gives up waiting"
    assert detokeniser.add(by_bytes.encode("x").ids[0]).endswith("x")


def test_special_tokens_are_no_text(by_bytes: Tokenizer) -> None:
    (end,) = by_bytes.encode("<end>").ids
    detokeniser = Detokeniser(by_bytes, [])
    assert [detokeniser.add(id) for id in [end] * 9] == [""] * 9
    assert detokeniser.add(by_bytes.encode("x").ids[0]) == "x"


def test_the_first_word_keeps_the_space_that_parts_it_from_the_prompt() -> None:
    # As in models of the Llama 2 kind, whose decoder takes the space off the first word of a text.
    tokenizer = Tokenizer(models.BPE({"▁one": 0, "▁two": 1}, []))
    tokenizer.decoder = decoders.Metaspace()
    assert Detokeniser(tokenizer, [0]).add(1) == " two"
    assert Detokeniser(tokenizer, []).add(1) == "two"


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
    assert "".join(guard.add(piece) for piece in pieces) + guard.rest() == shown
    assert guard.met is met


def test_stop_strings_cut_alike_however_the_text_comes() -> None:
    draw = random.Random(0)
    for _ in range(500):
        text = "".join(draw.choices("ab", k=30))
        stops = ["".join(draw.choices("ab", k=draw.randint(2, 6))) for _ in range(2)]
        guard, shown, rest = StopStrings(stops), "", text
        while rest and not guard.met:
            size = draw.randint(1, 5)
            shown += guard.add(rest[:size])
            rest = rest[size:]
        shown += guard.rest()
        # A stop string is met when its last letter comes, so of two that overlap the one that ends first may cut.
        ends = {stop: text.find(stop) + len(stop) for stop in stops if stop in text}
        assert guard.met is bool(ends)
        assert text.startswith(shown)
        assert not any(stop in shown for stop in stops)
        assert len(shown) in {text.find(stop) for stop in ends} if ends else shown == text
