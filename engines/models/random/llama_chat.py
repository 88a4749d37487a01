"""Llama 3.2's chat template as token ids, and a tokenizer with random text for them.

`random:llama-3.2-1b` needs it so that every engine, lm.rs with its built-in template included, reads the same tokens.
"""

from __future__ import annotations

from typing import Any

BEGIN, START_HEADER, END_HEADER, END_OF_TURN = 128000, 128006, 128007, 128009
SYSTEM, USER, ASSISTANT, BLANK_LINE = 9125, 882, 78191, 271
SPECIAL = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
# "Cutting Knowledge Date: December 2023\nToday Date: "
KNOWLEDGE = (38766, 1303, 33025, 2696, 25, 6790, 220, 2366, 18, 198, 15724, 2696, 25, 220)

BEFORE_DATE = (BEGIN, START_HEADER, SYSTEM, END_HEADER, BLANK_LINE, *KNOWLEDGE)
AFTER_DATE = (BLANK_LINE, END_OF_TURN)
BEFORE_USER = (START_HEADER, USER, END_HEADER, BLANK_LINE)
BEFORE_ASSISTANT = (START_HEADER, ASSISTANT, END_HEADER, BLANK_LINE)


def _text(*ids: int) -> str:
    return "".join(f"<|{id}|>" for id in ids)


# A system message stands after the date, as in Llama's own template.
TEMPLATE = (
    _text(*BEFORE_DATE)
    + "{{ strftime_now('%d %b %Y') }}"
    + _text(BLANK_LINE)
    + "{% if messages[0].role == 'system' %}{{ messages[0].content | trim }}{% endif %}"
    + _text(END_OF_TURN)
    + "{% for message in messages if message.role != 'system' %}"
    + "{% if message.role == 'user' %}"
    + _text(*BEFORE_USER)
    + "{% else %}"
    + _text(*BEFORE_ASSISTANT)
    + "{% endif %}{{ message.content | trim }}"
    + _text(END_OF_TURN)
    + "{% endfor %}{% if add_generation_prompt %}"
    + _text(*BEFORE_ASSISTANT)
    + "{% endif %}"
)


def with_chat_tokens(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """A `tokenizer.json` in which the template's ids are special tokens, and the texts they had move to unused ids."""
    vocabulary: dict[str, int] = dict(tokenizer["model"]["vocab"])
    texts = {id: text for text, id in vocabulary.items()}
    added = list(tokenizer["added_tokens"])
    unused = max(vocabulary.values())
    for id in sorted({*BEFORE_DATE, *AFTER_DATE, *BEFORE_USER, *BEFORE_ASSISTANT}):
        displaced = texts[id]
        del vocabulary[displaced]
        if not displaced.startswith("Ġ<"):  # a real text, not one of `fit_vocabulary`'s placeholders
            del vocabulary[texts[unused]]
            vocabulary[displaced] = unused
            unused -= 1
        vocabulary[_text(id)] = id
        added.append({"id": id, "content": _text(id), **SPECIAL})
    return tokenizer | {"added_tokens": added, "model": tokenizer["model"] | {"vocab": vocabulary}}
