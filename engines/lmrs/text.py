"""lm.rs's own text handling, written down: the tokenizer file it reads, and the tokens it makes of a prompt.

lm.rs takes text, cuts it into tokens by itself and puts it into its own chat template. To measure it fairly, one has to
know what it will read: `prompt_ids` predicts exactly that, so that it can be held against the ids every engine gets.

A token of the file is a score and a text. lm.rs starts from single characters and joins, again and again, the two
neighbours whose joint text is the token of the highest score, the leftmost first. With the ranks of a model's merges as
scores this is the model's own byte-pair encoding, but without its first step, the cutting of text into words.
"""

from __future__ import annotations

import datetime
import heapq
import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.contract.base import EngineUnavailable
from engines.lmrs.file import Family, Header

TOKENIZER_HEADER = struct.Struct("<4I")  # tokens, longest text in bytes, beginning of text, end of text
TOKEN_HEADER = struct.Struct("<fI")  # score, bytes of text
NEVER_JOINED = -1e10  # lm.rs takes a joint token only if its score is above this
BROKEN = "\N{REPLACEMENT CHARACTER}"  # what stands for half a character: lm.rs's texts are whole ones
DEFAULT_END = {"llama": "<|eot_id|>", "gemma": "<eos>", "phi": "<|end|>"}  # where lm.rs's own converter says so too

# What lm.rs puts around a user's message, as token ids. Llama's begins with a system message that holds today's date.
LLAMA_SYSTEM = (
    128000,
    128006,
    9125,
    128007,
    271,
    38766,
    1303,
    33025,
    2696,
    25,
    6790,
    220,
    2366,
    18,
    198,
    15724,
    2696,
    25,
    220,
)
LLAMA_SYSTEM_END = (271, 128009)
BEFORE: dict[Family, tuple[int, ...]] = {
    "llama": (128006, 882, 128007, 271),
    "gemma": (106, 1645, 108),
    "phi": (32010, 29871, 13),
}
AFTER: dict[Family, tuple[int, ...]] = {
    "llama": (128009, 128006, 78191, 128007, 271),
    "gemma": (107, 108, 106, 2516, 108),
    "phi": (32007, 29871, 13, 32001, 29871, 13),
}

# The same templates as text, as the server renders them. The message is what stands between.
RENDERED: dict[Family, re.Pattern[str]] = {
    "llama": re.compile(
        r"(?:<\|begin_of_text\|>)?"
        r"(?:<\|start_header_id\|>system<\|end_header_id\|>\n\n"
        r"Cutting Knowledge Date: [^\n]*\nToday Date: [^\n]*\n\n<\|eot_id\|>)?"
        r"<\|start_header_id\|>user<\|end_header_id\|>\n\n(.*)<\|eot_id\|>"
        r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n",
        re.DOTALL,
    ),
    "gemma": re.compile(
        r"(?:<bos>)?<start_of_turn>user\n(.*)<end_of_turn>\n<start_of_turn>model\n",
        re.DOTALL,
    ),
    "phi": re.compile(r"(?:<s>)?<\|user\|>\n(.*)<\|end\|>\n<\|assistant\|>\n", re.DOTALL),
}
TURN = {"llama": "<|start_header_id|>", "gemma": "<start_of_turn>", "phi": "<|end|>"}  # of which a message has none


def user_message(prompt: str, family: Family) -> str | None:
    """The text to send for a rendered prompt; `None` for a conversation that lm.rs has no way to take.

    A prompt without any template is a message as it stands.
    """
    if TURN[family] not in prompt:
        return prompt.strip()
    found = RENDERED[family].fullmatch(prompt)
    if found is None or TURN[family] in found[1]:
        return None
    return found[1].strip()


# The tokenizer file.


def write_tokenizer(folder: Path, header: Header, path: Path) -> None:
    """Write lm.rs's `tokenizer.bin` from a folder's `tokenizer.json`. Raises `EngineUnavailable` where it can't be."""
    described = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    if described["model"].get("type") != "BPE":
        raise EngineUnavailable(f"the tokenizer in {folder} is no byte-pair encoding; lm.rs reads nothing else.")
    texts, scores = _texts(described, header), _scores(described["model"])
    begin, end = _begin_and_end(folder, described, header.family)
    encoded = [text.encode() for text in texts]
    with path.open("wb") as file:
        file.write(TOKENIZER_HEADER.pack(len(texts), max(map(len, encoded)), begin, end))
        for id, text in enumerate(encoded):
            file.write(TOKEN_HEADER.pack(scores.get(id, NEVER_JOINED), len(text)) + text)


def _texts(described: dict[str, Any], header: Header) -> list[str]:
    """The text of each id. lm.rs panics over an id without one, so every id of the model's vocabulary gets one."""
    texts = [""] * header.vocabulary
    byte_of = _bytes_of_characters() if header.family == "llama" else None
    for token, id in described["model"]["vocab"].items():
        if id < len(texts):
            texts[id] = _plain(token, byte_of)
    for token in described.get("added_tokens", ()):
        if token["id"] < len(texts):
            texts[token["id"]] = token["content"]
    return texts


def _plain(token: str, byte_of: dict[str, int] | None) -> str:
    if byte_of is None:
        return token.replace("▁", " ")  # SentencePiece's space
    if not all(character in byte_of for character in token):
        return token
    return bytes(byte_of[character] for character in token).decode(errors="replace")


def _bytes_of_characters() -> dict[str, int]:
    """Byte-level BPE writes every byte as one printable character: itself where it is one, else from 256 upwards."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


def _scores(model: dict[str, Any]) -> dict[int, float]:
    """The earlier a merge was learned, the higher its product's score. What no merge makes is never joined."""
    scores: dict[int, float] = {}
    for rank, pair in enumerate(model["merges"]):
        left, right = pair.split(" ") if isinstance(pair, str) else pair
        id = model["vocab"].get(left + right)
        if id is not None:
            scores.setdefault(id, -float(rank))
    return scores


def _begin_and_end(folder: Path, described: dict[str, Any], family: Family) -> tuple[int, int]:
    ids = {
        **described["model"]["vocab"],
        **{token["content"]: token["id"] for token in described.get("added_tokens", ())},
    }
    config = json.loads((folder / "config.json").read_text())
    ends = config.get("eos_token_id")
    first_end = ends[0] if isinstance(ends, list) else ends
    end = ids.get(DEFAULT_END[family], first_end)
    begin = config.get("bos_token_id")
    if begin is None or end is None:
        raise EngineUnavailable(
            f"the model in {folder} names no token for the beginning or the end of text; lm.rs needs both."
        )
    return begin, end


@dataclass(frozen=True, slots=True)
class LmrsTokenizer:
    """A `tokenizer.bin`, read back, cutting text as lm.rs does."""

    texts: tuple[str, ...]
    scores: tuple[float, ...]
    begin: int
    end: int
    ids: dict[str, int]

    @classmethod
    def read(cls, path: Path) -> LmrsTokenizer:
        """Raises `ValueError` for a file that is none."""
        data = path.read_bytes()
        texts, scores = [], []
        try:
            count, _, begin, end = TOKENIZER_HEADER.unpack_from(data)
            offset = TOKENIZER_HEADER.size
            for _ in range(count):
                score, length = TOKEN_HEADER.unpack_from(data, offset)
                offset += TOKEN_HEADER.size + length
                texts.append(data[offset - length : offset].decode())
                scores.append(score)
        except (struct.error, UnicodeDecodeError) as error:
            raise ValueError(f"{path.name} is no tokenizer file of lm.rs.") from error
        return cls(tuple(texts), tuple(scores), begin, end, {text: id for id, text in enumerate(texts)})

    def prompt_ids(self, message: str, family: Family, today: datetime.date) -> tuple[int, ...] | None:
        """What lm.rs feeds its model for a user's message; `None` where its way with odd characters can't be told."""
        said = self.joined(message, BEFORE[family] if family == "llama" else (self.begin, *BEFORE[family]))
        date = self.joined(today.strftime("%d %b %Y")) if family == "llama" else ()
        if said is None or date is None:
            return None
        system = (*LLAMA_SYSTEM, *date, *LLAMA_SYSTEM_END) if family == "llama" else ()
        return (*system, *said, *AFTER[family])

    def joined(self, text: str, before: tuple[int, ...] = ()) -> tuple[int, ...] | None:
        """Tokens and single characters, the best neighbours joined until none are left. O(n log n)."""
        if any(character == BROKEN or character not in self.ids for character in text):
            return None  # lm.rs falls back on bytes at fixed ids there, and many of its texts are alike
        return _join([*before, *(self.ids[character] for character in text)], self)


def _join(tokens: list[int], vocabulary: LmrsTokenizer) -> tuple[int, ...]:
    texts, scores, ids = vocabulary.texts, vocabulary.scores, vocabulary.ids
    gone = -1  # a place whose token is now part of the one to its left
    left, right = list(range(-1, len(tokens) - 1)), list(range(1, len(tokens) + 1))
    candidates: list[tuple[float, int, int, int, int]] = []

    def consider(at: int) -> None:
        if at < 0 or right[at] == len(tokens):
            return
        one, two = tokens[at], tokens[right[at]]
        id = ids.get(texts[one] + texts[two])
        if id is not None and scores[id] > NEVER_JOINED:
            heapq.heappush(candidates, (-scores[id], at, one, two, id))

    for at in range(len(tokens)):
        consider(at)
    while candidates:
        _, at, one, two, id = heapq.heappop(candidates)
        after = right[at]
        if tokens[at] != one or after == len(tokens) or tokens[after] != two:
            continue  # one of the two has become part of something else since
        tokens[at], tokens[after] = id, gone
        right[at] = right[after]
        if right[at] < len(tokens):
            left[right[at]] = at
        consider(left[at])
        consider(at)
    return tuple(id for id in tokens if id != gone)
