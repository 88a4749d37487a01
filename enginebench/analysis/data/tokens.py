"""Count the tokens of answers whose server sent no usage, with the model's own tokenizer, if it is on this machine.

Nothing is downloaded, so that a report is the same without a network.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from enginebench.records.files import BLOCK_BYTES, decode_requests, read_meta, request_files
from enginebench.records.request import RequestRecord
from enginebench.records.run import RunMeta
from enginebench.settings.schema import UserMistake

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class TokenCounter:
    """Loads the tokenizer at the first text, because most servers send usage and need no tokenizer."""

    def __init__(self, meta: RunMeta, named: Path | None = None) -> None:
        """`named` is a tokenizer.json, or a folder with one; the default is the model's own."""
        self._meta = meta
        self._named = named

    def __call__(self, texts: list[str]) -> list[int] | None:
        """Count the tokens of each text; `None` without a tokenizer. Raises `UserMistake`."""
        if self._tokenizer is None:
            return None
        return [len(encoding.ids) for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        from tokenizers import Tokenizer

        path = next((path for path in self._candidates() if path.is_file()), None)
        if path is None:
            if self._named is not None:
                raise UserMistake(f"there is no tokenizer.json at {self._named}.")
            return None
        try:
            return Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises a bare Exception for a malformed file
            raise UserMistake(f"{path} is not a tokenizer ({error}).") from None

    def _candidates(self) -> Iterator[Path]:
        if self._named is not None:
            yield from (self._named, self._named / "tokenizer.json")
            return
        model = self._meta.model
        if model is None:
            return
        yield Path(model) / "tokenizer.json"
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
        from platformdirs import user_cache_path

        yield from sorted((user_cache_path("enginebench") / "models" / Path(model).name).glob("**/tokenizer.json"))
        try:
            cached = try_to_load_from_cache(model, "tokenizer.json")
        except HFValidationError:  # the server's name for its model is not valid on the hub
            return
        if isinstance(cached, str):
            yield Path(cached)


def write_counts(folder: Path) -> None:
    """Write the counts into the lines of a run that is over, so that a machine without the tokenizer reports the same
    numbers. If this machine lacks the tokenizer too, the lines stay as they are. Raises `OSError`, `UserMistake`."""
    count_tokens = TokenCounter(read_meta(folder))
    for path in request_files(folder):
        partial = path.with_name(f".{path.name}.partial")
        try:
            with path.open("rb") as source, partial.open("wb") as target:
                while lines := source.readlines(BLOCK_BYTES):
                    target.writelines(_with_counts(lines, count_tokens))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def _with_counts(lines: list[bytes], count_tokens: TokenCounter) -> list[bytes]:
    lacking = {
        k: record
        for k, line in enumerate(lines)
        if b'"output_tokens":null' in line
        for record in decode_requests(line)
        if isinstance(record, RequestRecord) and record.text
    }
    numbers = count_tokens([record.text or "" for record in lacking.values()]) if lacking else None
    for (k, record), tokens in zip(lacking.items(), numbers or (), strict=numbers is not None):
        counted = msgspec.structs.replace(record, output_tokens=tokens, token_source="tokenizer")
        lines[k] = counted.to_line().encode()
    return lines
