"""Prompts for the served model, whose tokens the server's `/tokenize` or a tokenizer file counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from enginebench.settings.schema import UserMistake
from loadtests.harness.client.dialects.endpoints import Endpoint
from loadtests.harness.run.target import Target
from loadtests.harness.workload.piece_tokens import measured
from loadtests.harness.workload.prompt_source import PromptSource, assumed, with_template
from loadtests.harness.workload.prompt_words import START, Kind


def prompt_source_for(
    target: Target,
    model: str,
    endpoint: Endpoint,
    kind: Kind,
    file: Path | None,
    tried: Callable[[str], int | None],
) -> PromptSource:
    """Return the source of prompts. `tried` sends a prompt and returns its tokens from the server's `usage`, if any.

    Raises `UserMistake` for token ids if tokens cannot be counted, and for an invalid tokenizer.
    """
    if kind == "ids" and endpoint != "completions":
        raise UserMistake("token ids as prompts need --endpoint completions.")
    chat = endpoint != "completions"
    if file is not None:
        tokenizer = _load(file)

        def encode(text: str, special: bool = False) -> Sequence[int]:
            ids: list[int] = tokenizer.encode(text, add_special_tokens=special).ids
            return ids

        source = measured(lambda text: len(encode(text, not chat)), encode, kind)
        counts_chats = False
    else:
        # Some servers' /tokenize takes only texts.
        counts_chats = chat and _count(target, model, START, as_chat=True) is not None
        source = measured(
            lambda text: _count(target, model, text, counts_chats), lambda text: _ids(target, model, text), kind
        )
    if source is None or (kind == "ids" and not source.ids):
        if kind == "ids":
            raise UserMistake(f"{target.url} has no /tokenize to get token ids from: give --tokenizer.")
        return with_template(assumed(kind, chat), tried(START))
    return source if counts_chats == chat else with_template(source, tried(START))


def _count(target: Target, model: str, text: str, as_chat: bool) -> int | None:
    """Count the tokens of a prompt, or of a chat with that message, including the chat template."""
    prompt = {"messages": [{"role": "user", "content": text}]} if as_chat else {"prompt": text}
    count = target.tokenized({"model": model, **prompt}).get("count")
    return count if isinstance(count, int) else None


def _ids(target: Target, model: str, text: str) -> Sequence[int]:
    tokens = target.tokenized({"model": model, "prompt": text, "add_special_tokens": False}).get("tokens")
    return [token for token in tokens if isinstance(token, int)] if isinstance(tokens, list) else ()


def _load(file: Path) -> Any:
    from tokenizers import Tokenizer  # slow to import, and needed only here

    path = file / "tokenizer.json" if file.is_dir() else file
    if not path.is_file():
        raise UserMistake(f"{file} has no tokenizer.json.")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception for a malformed file
        raise UserMistake(f"{path} is not a tokenizer ({error}).") from None
    tokenizer.no_truncation()
    return tokenizer
