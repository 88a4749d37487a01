"""Text that lm.rs tokenizes to exactly the request's tokens."""

import datetime

import pytest

from engines.contract.base import Model
from engines.lmrs.alphabet import Alphabet
from engines.text.detokenize import tokenizer_of
from tests.support.engines.lmrs_model import VOCABULARY


@pytest.mark.parametrize("day", ["2026-11-22", "2020-11-20", "2022-02-22", "2026-05-01", "2011-11-11"])
def test_the_date_and_every_message_are_read_as_the_models_own_tokens(day: str, tiny: Model) -> None:

    date = datetime.date.fromisoformat(day)
    alphabet = Alphabet.for_day(tokenizer_of(tiny.folder), VOCABULARY, date)
    assert tuple(alphabet.read(date.strftime("%d %b %Y"))) == alphabet.date
    ids = [300, 301, 301, 128_009, alphabet.date[0], 5000, VOCABULARY - 1]
    message = alphabet.message(ids)
    assert message is not None
    assert alphabet.read(message) == ids
    assert [alphabet.id(alphabet.character(id)) for id in ids] == ids


def test_a_chat_with_random_llama_is_read_as_the_servers_tokens() -> None:
    """One model that every engine runs on the same tokens, several turns included."""

    from engines.models.fetch import fetch_model
    from servers.openai.prompts import load_tokenizer

    model = fetch_model("random:llama-3.2-1b")
    messages = [{"role": "user", "content": "Why 2026?"}, {"role": "assistant", "content": "So."}]
    messages.append({"role": "user", "content": "And then, on 22 Nov 2026?"})
    served = load_tokenizer(model)
    ids = served.encode(served.render(messages), special=False, limit=1000)
    alphabet = Alphabet.for_day(tokenizer_of(model.folder), VOCABULARY, datetime.datetime.now().date())
    inside = alphabet.inside_template(ids)
    assert inside is not None
    message = alphabet.message(inside)
    assert message is not None
    assert alphabet.read(message) == list(inside)


def test_tokens_that_lmrs_would_merge_are_not_sent(tiny: Model) -> None:
    alphabet = Alphabet(VOCABULARY, (10, 20), {"2": 10, "22": 20}, ())
    assert alphabet.message([10, 10]) is None
    assert alphabet.message([10, 300, 10]) is not None
