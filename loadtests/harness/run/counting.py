"""How many tokens a prompt has for the served model: by the server's `/tokenize`, or by a tokenizer file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from enginebench.settings.schema import UserMistake
from loadtests.harness.client.dialects.endpoints import Endpoint
from loadtests.harness.run.target import Target
from loadtests.harness.workload.measuring import measured
from loadtests.harness.workload.prompt_source import PromptSource, assumed, with_template
from loadtests.harness.workload.prompt_words import START, WORDS, Kind


def prompt_source_for(
    target: Target, model: str, endpoint: Endpoint, kind: Kind, file: Path | None, tried: Callable[[str], int | None]
) -> PromptSource:
    """Return what prompts are made of. `tried` sends a prompt and gives its tokens by the server's `usage`, if any.

    Raises `UserMistake` for token ids without a way to get some, and for a tokenizer that is none.
    """
    if kind == "ids" and endpoint != "completions":
        raise UserMistake("token ids as prompts need --endpoint completions.")
    chat = endpoint != "completions"
    if file is not None:
        tokenizer = _load(file)
        ids = sorted({one for word in WORDS for one in tokenizer.encode(word, add_special_tokens=False).ids})
        source = measured(lambda text: len(tokenizer.encode(text, add_special_tokens=not chat).ids), kind, ids)
        of_chats = False
    else:
        # Some servers' /tokenize takes texts alone.
        of_chats = chat and _count(target, model, START, of_chat=True) is not None
        source = measured(lambda text: _count(target, model, text, of_chats), kind, _ids(target, model, kind))
    if source is None:
        if kind == "ids":
            raise UserMistake(f"{target.url} has no /tokenize to get token ids from: give --tokenizer.")
        return with_template(assumed(kind, chat), tried(START), known=False)
    if of_chats == chat:
        return source
    start = tried(START)
    # Without the server's count nothing is known of its chat template.
    return with_template(source, start, known=start is not None)


def _count(target: Target, model: str, text: str, of_chat: bool) -> int | None:
    """Tokens of the prompt, with the chat template where it is counted as a message of a chat."""
    prompt = {"messages": [{"role": "user", "content": text}]} if of_chat else {"prompt": text}
    count = target.tokenized({"model": model, **prompt}).get("count")
    return count if isinstance(count, int) else None


def _ids(target: Target, model: str, kind: Kind) -> Sequence[int]:
    if kind != "ids":
        return ()
    tokens = target.tokenized({"model": model, "prompt": "".join(WORDS), "add_special_tokens": False}).get("tokens")
    return sorted({token for token in tokens if isinstance(token, int)}) if isinstance(tokens, list) else ()


def _load(file: Path) -> Any:
    from tokenizers import Tokenizer  # not on the way of a run that needs none

    path = file / "tokenizer.json" if file.is_dir() else file
    if not path.is_file():
        raise UserMistake(f"there is no tokenizer.json at {file}.")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception for a malformed file
        raise UserMistake(f"{path} is not a tokenizer ({error}).") from None
    tokenizer.no_truncation()
    return tokenizer
