"""The engines side by side in one run: same model, same prompts, against each other and against the memory's limit.

    python -m benchmarks.engines.engines_side_by_side --output benchmarks/results/engines_side_by_side.json
    python -m benchmarks.engines.engines_side_by_side transformers burn --rounds 5

All engines are loaded first. Then, round after round, each has its turn at each number of users; all users of a turn
ask at once, greedily, each with a prompt of its own, and get answers of the same length. The rows marked "long" have
prompts of 1 000 tokens. Engines are driven through their child process, as the server does it, without HTTP.

"tokens/s" is the decode: tokens that arrive while every user is being answered (after the last first token, before the
first answer ends) ÷ that time. "with prompts" is all tokens ÷ the whole turn. Ratios are taken within a round, so what
changes slowly on the machine cancels; shown are medians, and in brackets the smallest and the largest round.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from statistics import median

import psutil

from bench.measuring.measure import decode_rate
from bench.roofline.limits import Reader
from bench.roofline.model_cost import bytes_per_token
from benchmarks.program import command_line, write
from benchmarks.watched_process import machine_cpu
from engines.contract.base import EngineInfo, EngineUnavailable, GenerateRequest, Model
from engines.models.fetch import fetch_model
from engines.process.child import ChildEngine
from engines.process.loading import load_engine

PROMPT = (
    "<|im_start|>user\nTell me in a few sentences what happened in the city of Paris in the year {year}, and what the "
    "people who lived there thought of it.<|im_end|>\n<|im_start|>assistant\n"
)
FIRST_YEAR = 1900
LONG_TOKENS = 1000  # of a long prompt, at least
BASELINE = "transformers"


@dataclass(frozen=True, slots=True)
class Entrant:
    """An engine with its settings. `weights`: how its matrices are kept (`model_cost.BITS`); `long`: the numbers
    of users with long prompts."""

    engine: str
    options: Mapping[str, str]
    users: tuple[int, ...]
    weights: str = "float32"
    long: tuple[int, ...] = (1, 8)


F32 = {"dtype": "float32"}
BATCHED = {"concurrency": "32"}
ENTRANTS = {
    "transformers": Entrant("transformers", F32, (1,), long=(1,)),
    "candle": Entrant("candle", F32, (1,), long=(1,)),
    "candle-batched": Entrant("candle", F32 | BATCHED, (1, 8, 32)),
    "candle-q8_0": Entrant("candle", {"dtype": "q8_0"} | BATCHED, (1, 8, 32), "q8_0"),
    "candle-q4_0": Entrant("candle", {"dtype": "q4_0"} | BATCHED, (1, 8, 32), "q4_0"),
    "burn": Entrant("burn", F32, (1, 8, 32)),
    "mistralrs": Entrant("mistralrs", F32 | BATCHED, (1, 8, 32)),
}


@dataclass(frozen=True, slots=True)
class Turn:
    """One engine, so many users, once. Tokens per second; `first_token` in seconds, the median of the users."""

    decode: float | None  # `None` where the first answer was complete before the last one began
    with_prompts: float
    first_token: float
    cores: float  # that the engine used
    cores_of_others: float  # that neither it nor this script used: what disturbed the measurement
    bandwidth: float  # bytes per second, measured in the same round


@dataclass(slots=True)
class Row:
    """One engine at one number of users, over all rounds."""

    entrant: str
    users: int
    bytes_per_token: float  # of weights
    long: bool = False  # prompts of `LONG_TOKENS`
    same_text: bool | None = None  # as the baseline, for the first user's answer; `None` where there is none
    turns: list[Turn] = field(default_factory=list)

    def decodes(self) -> list[float]:
        """Of every round; none where a round has none."""
        known = [turn.decode for turn in self.turns if turn.decode is not None]
        return known if len(known) == len(self.turns) else []

    def of_limit(self) -> list[float]:
        """Shares of what the memory allows one user's decode. With more users a weight is read once for all."""
        rounds = zip(self.decodes(), self.turns, strict=False)
        return [decode * self.bytes_per_token / turn.bandwidth for decode, turn in rounds]


class Benchmark:
    """The engines that can run here, and what was measured of them."""

    def __init__(self, model: Model, tokens: int) -> None:
        from tokenizers import Tokenizer

        self._model = model
        self._tokens = tokens
        self._tokenizer = Tokenizer.from_file(str(model.folder / "tokenizer.json"))
        self._reader = Reader()
        self._engines: dict[str, ChildEngine] = {}
        self._answers: dict[tuple[str, int, bool], str] = {}
        self.infos: dict[str, EngineInfo] = {}
        self.left_out: dict[str, str] = {}
        self.rows: dict[tuple[str, int, bool], Row] = {}

    async def run(self, names: list[str], rounds: int) -> None:
        async with AsyncExitStack() as stack:
            for name in names:
                await self._load(name, stack)
            for name in self._engines:  # the first answer of a process is not like the others
                await self._turn(name, 1, 0.0)
            for number in range(rounds):
                bandwidth = self._reader.bandwidth()
                print(f"round {number + 1}: memory is read at {bandwidth / 1e9:.1f} GB/s", file=sys.stderr)
                for name in self._engines:
                    entrant = ENTRANTS[name]
                    turns = [(users, False) for users in entrant.users] + [(users, True) for users in entrant.long]
                    for users, long in turns:
                        turn = await self._turn(name, users, bandwidth, long)
                        self._row(name, users, long).turns.append(turn)
                        print(
                            f"  {name} {users}{' long' * long}: {turn.with_prompts:.1f} tokens/s with prompts",
                            file=sys.stderr,
                        )

    async def _load(self, name: str, stack: AsyncExitStack) -> None:
        entrant = ENTRANTS[name]
        try:
            engine = load_engine(entrant.engine, self._model, entrant.options)
            self.infos[name] = await engine.start()
        except (ValueError, EngineUnavailable) as error:
            self.left_out[name] = str(error)
            print(f"{name} is left out: {error}", file=sys.stderr)
            return
        stack.push_async_callback(engine.stop)
        self._engines[name] = engine

    def _row(self, name: str, users: int, long: bool) -> Row:
        weights = bytes_per_token(self._model.folder, ENTRANTS[name].weights)
        row = self.rows.setdefault((name, users, long), Row(name, users, weights, long))
        if BASELINE in self._engines:
            row.same_text = self._answers[name, users, long] == self._answers[BASELINE, 1, long]
        return row

    async def _turn(self, name: str, users: int, bandwidth: float, long: bool = False) -> Turn:
        engine = self._engines[name]
        assert engine.pid is not None
        child, here = psutil.Process(engine.pid), psutil.Process()
        before = (_cpu(child), _cpu(here), machine_cpu())
        started = time.perf_counter()
        answers = await asyncio.gather(*(self._answer(engine, user, long) for user in range(users)))
        took = time.perf_counter() - started
        spent, own, machine = (
            later - earlier for later, earlier in zip((_cpu(child), _cpu(here), machine_cpu()), before, strict=True)
        )
        self._answers[name, users, long] = answers[0][1]
        arrivals = [arrived for arrived, _ in answers]
        return Turn(
            decode=decode_rate(arrivals),
            with_prompts=users * self._tokens / took,
            first_token=median(arrived[0][0] for arrived in arrivals) - started,
            cores=spent / took,
            cores_of_others=max(0.0, machine - spent - own) / took,
            bandwidth=bandwidth,
        )

    async def _answer(self, engine: ChildEngine, user: int, long: bool) -> tuple[list[tuple[float, int]], str]:
        """When how many tokens arrived, and the text."""
        prompt = PROMPT.format(year=FIRST_YEAR + user)
        if long:  # whole prompts, because mistral.rs takes no token ids that are not those of a text
            prompt *= -(-LONG_TOKENS // len(self._tokenizer.encode(prompt).ids))
        ids = tuple(self._tokenizer.encode(prompt).ids)
        stream = engine.generate(GenerateRequest(prompt, ids, self._tokens, ignore_eos=True))
        arrived, text = [], ""
        async for ready in stream:
            now = time.perf_counter()
            arrived += [(now, chunk.tokens) for chunk in ready]
            text += "".join(chunk.text for chunk in ready)
        if (count := sum(tokens for _, tokens in arrived)) != self._tokens:
            raise RuntimeError(f"{engine.name} gave {count} tokens, not {self._tokens}")
        return arrived, text


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def table(rows: Mapping[tuple[str, int, bool], Row]) -> Iterator[str]:
    heads = f"{'× ' + BASELINE:>22}{'× limit':>20}{'× its 1 user':>20}"
    yield f"{'engine':14}{'users':>6}{'':5}{'tokens/s':>22}{'with prompts':>14}{'TTFT ms':>9}{heads}"
    for row in rows.values():
        base, alone = rows.get((BASELINE, 1, row.long)), rows.get((row.entrant, 1, row.long))
        limit = row.of_limit() if row.users == 1 and not row.long else []
        whole, first = median(turn.with_prompts for turn in row.turns), median(turn.first_token for turn in row.turns)
        yield (
            f"{row.entrant:14}{row.users:6}{' long' * row.long:5}{spread(row.decodes(), 1) or 'n/a':>22}{whole:14.1f}"
            f"{1e3 * first:9.0f}{spread(ratios(row, base), 2):>22}{spread(limit, 2):>20}"
            f"{spread(ratios(row, alone), 2):>20}"
        )


def ratios(row: Row, to: Row | None) -> list[float]:
    """Round by round; nothing to itself."""
    if to is None or to is row:
        return []
    return [one / other for one, other in zip(row.decodes(), to.decodes(), strict=False)]


def spread(values: list[float], digits: int) -> str:
    if not values:
        return ""
    return f"{median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("entrant", nargs="*", choices=[*ENTRANTS, []], help="all by default")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    parser.add_argument("--tokens", type=int, default=64, help="length of each answer")
    arguments = parser.parse_args()
    load_average = os.getloadavg()[0]
    benchmark = Benchmark(fetch_model(), arguments.tokens)
    asyncio.run(benchmark.run(arguments.entrant or list(ENTRANTS), arguments.rounds))
    print("\n".join(table(benchmark.rows)))
    write(
        arguments.output,
        *("torch", "transformers", "mistralrs"),
        load_average=load_average,
        engines={name: asdict(info) for name, info in benchmark.infos.items()},
        left_out=benchmark.left_out,
        rows=[asdict(row) for row in benchmark.rows.values()],
    )


if __name__ == "__main__":
    main()
