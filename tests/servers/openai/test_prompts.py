"""The model's own tokenizer and chat template, held against transformers', which is what models are trained with."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from engines.contract.base import Model
from engines.contract.errors import EngineUnavailable
from servers.http.api_errors import ApiError
from servers.openai.prompts import ByteTokenizer, ModelTokenizer, load_tokenizer

pytestmark = pytest.mark.xdist_group("torch")

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TEXT = "The quick brown fox jumps over the lazy dog. Über die Brücke läuft 猫🙂.\n"
CHATML = """{%- for message in messages -%}
    {%- if message.role not in ["system", "user", "assistant"] %}
    {{ raise_exception("no role " + message.role) }}
    {% endif %}
    {{- "<|im_start|>" + message.role + "\n" + message.content | trim + "<|im_end|>\n" -}}
{%- endfor -%}
{% if add_generation_prompt %}{{ "<|im_start|>assistant\n" }}{% endif %}"""
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": ' Why is the sky <b>blue</b> & "high"? 猫 '},
    {"role": "assistant", "content": "Scattering."},
    {"role": "user", "content": "And at night?"},
]


@pytest.fixture(scope="module")
def trained() -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer with special tokens around every prompt, as Llama's has."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer


def folder_with(path: Path, trained: tokenizers.Tokenizer, template: Any, **files: str) -> Path:
    trained.save(str(path / "tokenizer.json"))
    config: dict[str, Any] = {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    if template is not None:
        config["chat_template"] = template
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    for name, content in files.items():
        (path / name.replace("_jinja", ".jinja")).write_text(content)
    return path


def reference(trained: tokenizers.Tokenizer, template: str) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=trained, bos_token="<s>", eos_token="</s>", chat_template=template)


@pytest.mark.parametrize(
    "template",
    [
        pytest.param(CHATML, id="ChatML, with trimmed blocks and a role check"),
        pytest.param(
            "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}",
            id="special tokens by name",
        ),
        pytest.param(
            "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m | tojson }}{% endfor %}",
            id="loop controls, and JSON that escapes nothing for HTML",
        ),
        pytest.param(
            "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
            "{% else %}{{ m.content }}{% endif %}{% endfor %}",
            id="the mark around what an assistant says",
        ),
        pytest.param("{{ strftime_now('%Y') }}{{ messages[-1].content }}", id="the date"),
        pytest.param(
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
            id="a namespace",
        ),
    ],
)
def test_renders_and_tokenises_as_transformers_does(
    template: str, trained: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    ours, theirs = ModelTokenizer(folder_with(tmp_path, trained, template)), reference(trained, template)
    for add_generation_prompt in (True, False):
        rendered = ours.render(MESSAGES, add_generation_prompt)
        assert rendered == theirs.apply_chat_template(
            MESSAGES, tokenize=False, add_generation_prompt=add_generation_prompt
        )
        assert (
            ours.encode(rendered, special=False, limit=100_000)
            == theirs(rendered, add_special_tokens=False)["input_ids"]
        )


def test_a_plain_prompt_gets_the_tokens_that_the_model_wants_around_it(
    trained: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    tokenizer = ModelTokenizer(folder_with(tmp_path, trained, None))
    assert tokenizer.encode(TEXT, special=True, limit=100_000) == [
        0,
        *tokenizer.encode(TEXT, special=False, limit=100_000),
    ]
    assert tokenizer.decode(tokenizer.encode(TEXT, special=False, limit=100_000)) == TEXT
    assert tokenizer.vocab_size == trained.get_vocab_size()


def test_templates_get_tools_and_documents_that_are_none(trained: tokenizers.Tokenizer, tmp_path: Path) -> None:
    """As in transformers; a template may ask `tools is not none` without asking whether they are defined."""
    template = "{{ tools is none }} {{ documents is none }}{% if tools is not none %}{{ tools | length }}{% endif %}"
    tokenizer = ModelTokenizer(folder_with(tmp_path, trained, template))
    assert tokenizer.render(MESSAGES) == "True True"


def test_a_text_that_is_far_too_long_is_refused_before_all_of_it_is_tokenised(
    trained: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    tokenizer = ModelTokenizer(folder_with(tmp_path, trained, None))
    text = TEXT * 4_000
    began = time.process_time()
    ids = tokenizer.encode(text, special=False, limit=len(text))
    whole = time.process_time() - began
    for limit in (len(ids), int(0.95 * len(ids))):  # here the caller decides by the exact number
        assert tokenizer.encode(text, special=False, limit=limit) == ids
    began = time.process_time()
    with pytest.raises(ApiError, match="context length is 1000 tokens"):
        tokenizer.encode(text, special=False, limit=1000)
    assert time.process_time() - began < 0.3 * whole


def test_truncation_that_a_tokenizer_was_saved_with_is_not_applied(
    trained: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    cutting = tokenizers.Tokenizer.from_str(trained.to_str())
    cutting.enable_truncation(5)
    cutting.enable_padding(length=2000)
    tokenizer = ModelTokenizer(folder_with(tmp_path, cutting, None))
    assert (
        tokenizer.encode(TEXT * 4, special=False, limit=100_000)
        == trained.encode(TEXT * 4, add_special_tokens=False).ids
    )


@pytest.mark.parametrize(
    ("template", "files", "expected"),
    [
        pytest.param("config", {"chat_template_jinja": "file"}, "file", id="a file of its own comes first"),
        pytest.param(
            [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}],
            {},
            "plain",
            id="of several named ones, the default",
        ),
    ],
)
def test_where_the_template_is_found(
    template: Any, files: dict[str, str], expected: str, trained: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    assert ModelTokenizer(folder_with(tmp_path, trained, template, **files)).render(MESSAGES) == expected


@pytest.mark.parametrize(
    ("template", "messages", "sentence"),
    [
        pytest.param(None, MESSAGES, "no chat template", id="a model that knows no chat"),
        pytest.param(CHATML, [{"role": "tool", "content": "x"}], "no role tool", id="the template's own refusal"),
        pytest.param("{{ messages[0].content + 1 }}", MESSAGES, "fails .*TypeError", id="a template that stumbles"),
        pytest.param("{{ messages[0].content.__class__.__mro__ }}", MESSAGES, "unsafe", id="a template that pries"),
        pytest.param("{{ messages.append(1) }}", MESSAGES, "unsafe", id="a template that changes what it was given"),
    ],
)
def test_what_a_template_refuses_is_the_clients_fault(
    template: str | None, messages: list[dict[str, str]], sentence: str, trained: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    with pytest.raises(ApiError, match=sentence) as refusal:
        ModelTokenizer(folder_with(tmp_path, trained, template)).render(messages)
    assert refusal.value.status == 400


def test_a_model_without_a_tokenizer_cannot_be_served(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"tokenizer\.json"):
        load_tokenizer(Model("a-model", tmp_path))


def test_a_broken_template_is_found_at_the_start(trained: tokenizers.Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="chat template is not valid"):
        ModelTokenizer(folder_with(tmp_path, trained, "{% for %}"))


def test_without_a_model_a_token_is_a_byte(tmp_path: Path) -> None:
    for model in (None, Model("random:gpt2", tmp_path, random_weights=True)):
        tokenizer = load_tokenizer(model)
        assert isinstance(tokenizer, ByteTokenizer)
        ids = tokenizer.encode(TEXT, special=True, limit=100_000)
        assert len(ids) == len(TEXT.encode())
        assert tokenizer.decode(ids) == TEXT
        assert max(ids) < tokenizer.vocab_size
