"""From token ids to text: only whole characters."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel

from engines.text.detokenize import Detokenizer, token_text


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
    detokeniser = Detokenizer(by_bytes, [])
    pieces = [detokeniser.add(id) for id in ids]
    assert "".join(pieces) + detokeniser.rest() == text
    assert not any("�" in piece for piece in pieces)
    assert [piece for piece in pieces if piece] == list(text), "each character comes with its last byte"


def test_a_character_that_never_ends_is_shown_as_such_at_the_end(by_bytes: Tokenizer) -> None:
    first, *_ = by_bytes.encode("🚀").ids
    detokeniser = Detokenizer(by_bytes, [])
    assert detokeniser.add(first) == ""
    assert detokeniser.rest() == "�"
    assert detokeniser.rest() == ""


def test_bytes_that_are_no_character_do_not_hold_up_what_follows(by_bytes: Tokenizer) -> None:
    broken = by_bytes.encode("🚀").ids[0]
    detokeniser = Detokenizer(by_bytes, [])
    pieces = [detokeniser.add(broken) for _ in range(12)]
    assert sum(bool(piece) for piece in pieces) == 3, "every fourth one gives up waiting"
    assert detokeniser.add(by_bytes.encode("x").ids[0]).endswith("x")


@pytest.mark.parametrize("prompt", [[], [0]])
def test_a_broken_byte_behind_a_line_break_ends_nothing(prompt: list[int]) -> None:
    """SentencePiece's decoder turns a run of bytes into as many U+FFFD if one is invalid, the line break too."""
    vocabulary = {"<0x0A>": 0, "<0xF0>": 1, "a": 2, "▁b": 3}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    detokeniser = Detokenizer(tokenizer, prompt)
    assert [detokeniser.add(id) for id in (0, 1, 2, 3)] == ["\n", "", "\ufffda", " b"]


def test_a_character_behind_special_tokens_is_whole(by_bytes: Tokenizer) -> None:
    ids = by_bytes.encode("<end><end>x<end>🚀").ids
    detokeniser = Detokenizer(by_bytes, [])
    assert "".join(map(detokeniser.add, ids)) + detokeniser.rest() == "x🚀"


def test_special_tokens_are_no_text(by_bytes: Tokenizer) -> None:
    (end,) = by_bytes.encode("<end>").ids
    detokeniser = Detokenizer(by_bytes, [])
    assert [detokeniser.add(id) for id in [end] * 9] == [""] * 9
    assert detokeniser.add(by_bytes.encode("x").ids[0]) == "x"


def test_the_first_word_keeps_the_space_that_parts_it_from_the_prompt() -> None:
    # As in models of the Llama 2 kind, whose decoder takes the space off the first word of a text.
    tokenizer = Tokenizer(models.BPE({"▁one": 0, "▁two": 1}, []))
    tokenizer.decoder = decoders.Metaspace()
    assert Detokenizer(tokenizer, [0]).add(1) == " two"
    assert Detokenizer(tokenizer, []).add(1) == "two"


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_half_a_character_at_the_prompts_end_brings_none_of_its_text(cut: int, by_bytes: Tokenizer) -> None:
    ids = by_bytes.encode("The village near the sea 🦭").ids
    answer = Detokenizer(by_bytes, ids[:-cut])
    shown = "".join(map(answer.add, [*ids[-cut:], *by_bytes.encode(" barks").ids]))
    assert shown + answer.rest() == "🦭 barks"


def test_the_bytes_of_a_part_of_a_character_are_the_tokens(by_bytes: Tokenizer) -> None:
    ids = by_bytes.encode("a🚀").ids
    assert token_text(by_bytes, ids[0]) == ("a", None)
    told = [token_text(by_bytes, id) for id in ids[1:]]
    assert [text for text, _ in told] == ["\ufffd"] * 4
    assert bytes(byte for _, data in told for byte in data or ()) == "🚀".encode()
