"""The static decoder generates the tokens of Transformers, however its steps are shaped."""

from pathlib import Path
from typing import Any

import pytest

from engines.contract.errors import BadRequest, EngineError, EngineUnavailable
from engines.static.batch import Batch
from engines.static.engine import StaticOptions
from engines.static.step_shapes import Buckets, StepShape
from engines.static.weights import DecoderShape
from engines.text.sampler import OVERFLOWED
from tests.support.engines.static_decoder import BUCKETS, Small, answers, generated, prompt
from tests.support.engines.torch_when_used import torch

pytestmark = pytest.mark.xdist_group("torch")

POISON = 1  # a token that has no finite values in `poisoned`, and that no other prompt or answer here has


@pytest.mark.parametrize(
    ("model_type", "differs"),
    [
        pytest.param("llama", {}, id="llama"),
        pytest.param("llama", {"attention_bias": True, "mlp_bias": True}, id="llama with biases everywhere"),
        pytest.param("llama", {"head_dim": 32, "tie_word_embeddings": True}, id="narrow heads, tied embeddings"),
        pytest.param("mistral", {"sliding_window": None}, id="mistral"),
        pytest.param("qwen2", {}, id="qwen2, whose queries, keys and values have biases"),
        pytest.param("phi3", {}, id="phi3, whose products are fused"),
    ],
)
def test_a_family_generates_the_tokens_of_transformers(model_type: str, differs, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    small = Small(tmp_path, model_type, **differs)
    batch = small.batch()
    prompts = [prompt(seed, tokens) for seed, tokens in enumerate((3, 16, 17, 40))]
    together = generated(batch, *(small.sequence(one) for one in prompts))
    assert together == [small.expected(one) for one in prompts]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return Small(tmp_path_factory.mktemp("small"))


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 31, 32, 33, 51], ids="{} tokens".format)
def test_a_prompt_of_any_length_is_read_in_chunks(small: Small, tokens: int) -> None:
    one = prompt(tokens, tokens)
    assert generated(small.batch(), small.sequence(one)) == [small.expected(one)]


def test_sequences_join_and_leave_a_running_batch(small: Small) -> None:
    """More than there are rows, of many lengths: rows are left, moved and taken again."""
    batch = small.batch()
    sizes = [(2, 3), (30, 12), (5, 9), (18, 1), (40, 12), (1, 12), (9, 4), (16, 7), (33, 5)]
    prompts = [(prompt(seed, tokens), most) for seed, (tokens, most) in enumerate(sizes)]
    answers = generated(batch, *(small.sequence(one, most) for one, most in prompts))
    assert answers == [small.expected(one, most) for one, most in prompts]


def test_an_answer_ends_with_the_context(small: Small) -> None:
    one = prompt(0, 60)
    assert generated(small.batch(), small.sequence(one, 100)) == [small.expected(one, 4)]
    with pytest.raises(BadRequest, match="the prompt has 64 tokens; this model takes 1 to 63"):
        small.sequence(prompt(0, 64))


def test_a_cancelled_sequence_leaves_and_the_others_do_not_notice(small: Small) -> None:
    batch, one = small.batch(), prompt(1, 20)
    leaving, staying = small.sequence(prompt(2, 20), 30), small.sequence(one)
    batch.add(leaving)
    for _ in range(4):
        assert batch.admit() == []
        batch.read()
        batch.advance()
    leaving.cancelled = True
    assert generated(batch, staying) == [small.expected(one)]
    assert batch.sequences == []
    assert batch.cache_usage == 0


def test_a_seed_repeats_whatever_runs_beside(small: Small) -> None:
    one = prompt(3, 10)
    settings: dict[str, Any] = {"temperature": 1.0, "seed": 7}
    (alone,) = generated(small.batch(), small.sequence(one, **settings))
    beside = generated(small.batch(), small.sequence(prompt(4, 30)), small.sequence(one, **settings))
    assert beside[1] == alone
    assert alone != small.expected(one), "a sampled answer that is the greedy one would show nothing"


def test_a_step_runs_in_the_smallest_bucket_that_holds_it() -> None:
    assert Buckets.within((8, 1, 4), (512, 2048), 64, 1000) == Buckets((1, 4, 8), (512, 1024), 64)
    assert BUCKETS.decoding(2, 32) == StepShape(4, 1, 32)
    assert BUCKETS.decoding(1, 33) == StepShape(1, 1, 64)
    assert BUCKETS.reading(1, 48) == StepShape(1, 16, 64)
    assert len(list(BUCKETS.all())) == 2 * (1 + 2)
    several = Buckets.within((1, 8), (512,), 64, 1000, prompts=4)
    assert [several.reading(prompts, 64).batch for prompts in (1, 2, 3, 4, 9)] == [1, 2, 2, 4, 4]
    assert Buckets.within((1, 2), (512,), 64, 1000, prompts=4).prompts == (1, 2), "not more than there are rows"


def test_what_is_prepared_on_a_gpu_is_of_its_size() -> None:
    options = StaticOptions()
    cpu = options.buckets(8192, False, lambda length: 1)
    assert cpu == Buckets((1, 4, 8), (512, 2048), 64)
    gpu = options.buckets(8192, True, lambda length: 1000)
    assert gpu == Buckets((1, 8, 32, 64, 128, 256), (512, 2048, 4096), 512, (1, 2, 4))
    assert max(shape.batch * shape.tokens for shape in gpu.all()) == 2048
    assert options.buckets(8192, True, lambda length: 131_072 / length).batches == (1, 8, 32), "as far as they fit"
    assert options.buckets(8192, True, lambda length: 0.5).batches == (1,)
    assert options.buckets(8192, True, lambda length: 7.9).batches == (1, 7), "what fits, between two usual sizes"
    assert options.buckets(8192, True, lambda length: 100).batches == (1, 8, 32, 64, 100)
    given = StaticOptions(batches=(1, 16), lengths=(1024,), chunk=256, prompts=2)
    assert given.buckets(8192, True, lambda length: 1) == Buckets((1, 16), (1024,), 256, (1, 2))


@pytest.mark.parametrize(
    ("fit", "batches"), [(0.5, (1,)), (2, (1,)), (7.5, (1, 3)), (9, (1, 5)), (36, (1, 8, 32)), (40, (1, 8, 32, 36))]
)
def test_a_second_cache_takes_rows_from_the_first(fit: float, batches: tuple[int, ...]) -> None:
    """Of up to four prompts, but no more than there are rows: 3 + 3 of 7.5, 5 + 4 of 9."""
    found = StaticOptions().buckets(8192, True, lambda length: fit, second_cache=True)
    assert found.batches == batches


def test_several_prompts_are_read_in_one_step(small: Small) -> None:
    """Of many lengths, so that some end before those beside them; rows are left, moved and taken again."""
    buckets = Buckets((1, 4), (32, 64), 16, (1, 2, 4))
    batch = small.batch(buckets=buckets)
    sizes = [(40, 12), (17, 3), (2, 9), (33, 5), (30, 12), (5, 9), (18, 1), (50, 12), (1, 12), (9, 4)]
    prompts = [(prompt(seed, tokens), most) for seed, (tokens, most) in enumerate(sizes)]
    answers = generated(batch, *(small.sequence(one, most) for one, most in prompts))
    assert answers == [small.expected(one, most) for one, most in prompts]


@pytest.mark.parametrize(
    ("model_type", "differs", "sentence"),
    [
        pytest.param(
            "gpt2", {}, "torch-jit runs Llama, Mistral, Qwen2 and Phi-3, not gpt2; the engine transf", id="gpt2"
        ),
        pytest.param(
            "bert", {}, "bert is an encoder and generates no tokens, so there is nothing to stream", id="bert"
        ),
        pytest.param("llama", {"hidden_act": "gelu"}, "computes the activation silu, not gelu", id="activation"),
        pytest.param(
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
            "no rotary scaling that depends on the length",
            id="scaling by length",
        ),
    ],
)
def test_a_model_that_it_does_not_compute_gets_a_sentence(model_type: str, differs, sentence: str) -> None:  # type: ignore[no-untyped-def]
    from transformers import AutoConfig

    with pytest.raises(EngineUnavailable, match=sentence):
        DecoderShape.from_config(AutoConfig.for_model(model_type, **differs), "torch-jit")


def test_a_sliding_window_ends_the_context() -> None:
    from transformers import AutoConfig

    config = AutoConfig.for_model("mistral", sliding_window=1024, max_position_embeddings=8192)
    assert DecoderShape.from_config(config, "torch-jit").context_length == 1024


def poisoned(small: Small) -> Batch:
    """As in a number format that is too narrow for the values of one token."""
    from engines.static.decoder import Decoder

    step = small.step()
    step.weights.embedding[POISON] = torch.inf
    return Batch(Decoder(step, BUCKETS, lambda step, shape, example: step))


def are_expected(small: Small, batch: Batch, prompts: list[list[int]]) -> None:
    assert answers(batch, *(small.sequence(one) for one in prompts)) == [small.expected(one) for one in prompts]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("where", ["prompt", "answer"])
def test_a_request_without_finite_logits_fails_alone(small: Small, where: str, temperature: float) -> None:
    """Those beside it do not notice, nor do those that get its row next: it was masked, and 0 × NaN is NaN."""
    batch = poisoned(small)
    middle = [POISON] if where == "prompt" else []
    forced = () if where == "prompt" else (5, POISON, 7)
    ids = [*prompt(1, 5), *middle, *prompt(2, 14)]
    failing = small.sequence(ids, temperature=temperature, seed=1, forced_token_ids=forced)
    beside = [prompt(seed, 20) for seed in (3, 4)]
    *others, error = answers(batch, *(small.sequence(one) for one in beside), failing)
    assert others == [small.expected(one) for one in beside]
    assert isinstance(error, EngineError)
    assert str(error) == OVERFLOWED
    are_expected(small, batch, [prompt(seed, 2) for seed in range(5, 9)])


def test_two_that_fail_in_one_step_leave_clean_rows(small: Small) -> None:
    batch = poisoned(small)
    failing = [small.sequence(prompt(seed, 20), forced_token_ids=(5, POISON, 7)) for seed in (1, 2)]
    batch.add(failing[0])
    batch.add(failing[1])
    batch.admit()
    for _ in range(4):
        batch.read()
    batch.advance()
    assert [str(error) for _, error in batch.advance()] == [OVERFLOWED, OVERFLOWED]
    are_expected(small, batch, [prompt(seed, 2) for seed in range(5, 9)])


def test_a_prompt_that_moves_half_read_leaves_a_clean_row(small: Small) -> None:
    """The first ends when two chunks of the second are read, which moves into its row and fails there."""
    batch = poisoned(small)
    short, failing = prompt(1, 2), [*prompt(2, 2), POISON, *prompt(3, 37)]
    first, error = answers(batch, small.sequence(short, 4), small.sequence(failing))
    assert first == small.expected(short, 4)
    assert str(error) == OVERFLOWED
    are_expected(small, batch, [prompt(seed, 2) for seed in (5, 6)])


def test_a_prompt_that_is_left_half_read_leaves_a_clean_row(small: Small) -> None:
    batch = poisoned(small)
    leaving = small.sequence([POISON, *prompt(2, 40)])
    batch.add(leaving)
    batch.admit()
    for _ in range(2):
        assert batch.read() == []
    leaving.cancelled = True
    assert batch.admit() == [(leaving, None)]
    are_expected(small, batch, [prompt(5, 2)])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_likeliest_token_is_that_of_finite_logits(dtype: str) -> None:
    from engines.static.decoder import NO_TOKEN, Decoder

    nan, inf = torch.nan, torch.inf
    rows = [[1, 3, 2], [-5, -inf, -7], [nan, 3, 2], [1, inf, 2], [nan, nan, nan], [-inf, -inf, -inf]]
    logits = torch.tensor(rows, dtype=getattr(torch, dtype))
    assert Decoder.likeliest(logits) == [1, 0, *[NO_TOKEN] * 4]
