"""The tokenizer of models with random weights: byte-level BPE, made from this project's own text, and shipped with it.

`merges.txt` has its merges, in the order in which they were learned; everything else follows from them. A larger
vocabulary is filled with pairs of tokens, which are merges too: the text of every id is encoded as that id again, for
example in the next turn of a conversation.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from engines.text.detokenize import byte_alphabet

MERGES = Path(__file__).with_name("merges.txt")
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PAD, BEGIN, END = range(len(SPECIAL))
# Digits one by one, then words with their space, as Llama's and SmolLM's tokenizers cut text.
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
CUT = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, LEVEL]}
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SETTINGS = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": SPECIAL[BEGIN],
    "eos_token": SPECIAL[END],
    "pad_token": SPECIAL[PAD],
    "clean_up_tokenization_spaces": False,
}


def make_tokenizer(size: int) -> dict[str, Any]:
    """Return a `tokenizer.json` with exactly `size` ids."""
    merges = [tuple(line.split(" ")) for line in MERGES.read_text(encoding="utf-8").splitlines()]
    base = [*SPECIAL, *sorted(byte_alphabet())]
    merges = merges[: max(0, size - len(base))]
    learned = _document([*base, *("".join(pair) for pair in merges)], merges)
    pairs = list(itertools.islice(_pairs(learned), max(0, size - len(base) - len(merges))))
    merges += pairs
    return _document([*base, *("".join(pair) for pair in merges)], merges)


def _document(tokens: Sequence[str], merges: Sequence[Sequence[str]]) -> dict[str, Any]:
    return {
        "version": "1.0",
        "added_tokens": [{"id": id, "content": text, **FLAGS} for id, text in enumerate(SPECIAL)],
        "pre_tokenizer": CUT,
        "decoder": LEVEL,
        "model": {
            "type": "BPE",
            "vocab": {text: id for id, text in enumerate(tokens)},
            "merges": [list(pair) for pair in merges],
        },
    }


def _pairs(learned: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the beginning and the end of words that are encoded as exactly these two tokens."""
    from tokenizers import Tokenizer

    reader = Tokenizer.from_str(json.dumps(learned))
    texts = list(learned["model"]["vocab"])
    heads = [text for text in texts if text[:1] == "Ġ" and text[1:].isalpha() and text[1:].isascii()]
    ends = [text for text in texts if text.isascii() and text.isalpha() and text.islower() and len(text) > 1]
    for end in ends:
        words = [f" {head[1:]}{end}" for head in heads]
        for head, encoded in zip(heads, reader.encode_batch(words), strict=True):
            if encoded.tokens == [head, end]:
                yield head, end
