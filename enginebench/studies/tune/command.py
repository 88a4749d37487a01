"""The command `tune`: find the options of an engine or a server that serve most within an SLO."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enginebench.records.formatting import CURRENCY
from enginebench.settings.flags import AsJson, Budget, Engines, Models, Urls, duration, typed_texts, with_flags
from enginebench.settings.schema import UserMistake, choose_from, from_environment, options_by_engine, settings_of
from enginebench.studies.tune.folder import Question, open_folder
from enginebench.studies.tune.goals import GOALS, Goal
from loadtests.harness.scenario import Scenario
from loadtests.harness.settings.run_settings import RunSettings, runs_here

if TYPE_CHECKING:
    from enginebench.studies.tune.course import Course
    from enginebench.studies.tune.variants import Entrant

RUNS = runs_here()
OFFERED = {
    *("slo", "stages", "rate", "stage_seconds", "search_seconds", "prompt_tokens", "output_tokens", "dataset", "trace"),
}
NOT_OFFERED = {setting.name for setting in settings_of(Scenario)} - OFFERED
MEANINGS = [scoring.meaning for scoring in GOALS.values()]

OPTION = typer.Option(
    "--option",
    "-o",
    metavar="[ENGINE.]NAME=VALUES",
    help="Values to try: 16,64,256 or 512..8192; a single value is for all variants. Default: as the engine declares.",
)
RESTART = typer.Option(
    metavar="COMMAND", help="Start the server of --url with this command, in which {NAME} is the value of -o NAME."
)
FOR = typer.Option("--for", help=f"Maximise {', '.join(MEANINGS[:-1])}, or {MEANINGS[-1]}.")
PRICE = typer.Option(metavar=f"[NAME=]{CURRENCY.code}", help="Price of a GPU or server per hour, for --for cost.")
LOAD_TIMEOUT = typer.Option(metavar="S", help="A server that is not ready by then fails.", parser=duration(1))


@with_flags(Scenario, leave_out=NOT_OFFERED)
def tune(
    engine: Engines = None,
    url: Urls = None,
    option: Annotated[list[str] | None, OPTION] = None,
    model: Models = None,
    restart: Annotated[str, RESTART] = "",
    goal: Annotated[Goal, FOR] = "goodput",
    budget: Budget = None,
    price: Annotated[list[str] | None, PRICE] = None,
    load_timeout: Annotated[float, LOAD_TIMEOUT] = 900.0,
    folder: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of the race. Default: one for this question in runs/.")
    ] = None,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Find the options that serve most within an SLO, and test whether they beat the default.

    A race drops variants until one is left, but proves nothing. Fresh runs of that one and the default, in pairs, then
    confirm it or not: if all variants are equal, less than 5 % of tunings name a false winner. Ctrl-C and --budget lose
    no finished run: the same command resumes.

    Exit code: 0 a variant is confirmed or none beats the default, 2 a usage error or Ctrl-C, 3 not confirmed yet.

    Examples:

      enginebench tune --engine vllm --model NAME --slo ttft_p95=500ms,tpot_p95=50ms

      enginebench tune --engine vllm -o concurrency=16,64,256 -o batch_tokens=512..8192 --slo ttft_p95=1s --budget 1h

      enginebench tune --url http://127.0.0.1:8000 -o seqs=64,128 --restart 'vllm serve NAME --max-num-seqs {seqs}'
    """
    from enginebench.analysis.commands.output import PAGE, deliver
    from enginebench.analysis.settings import parse_prices
    from enginebench.analysis.write.terminal import print_table
    from enginebench.records.exit_codes import GOOD, INVALID, NOT_ENOUGH
    from enginebench.studies.study.runner import only_here
    from enginebench.studies.tune.report import tune_document, variants_table
    from enginebench.studies.tune.runner import OutOfTime, TuneRunner
    from loadtests.harness.command.command_terminal import Terminal, sigterm_is_ctrl_c
    from loadtests.harness.command.job import SET_FOR_EACH_RUN, Job
    from loadtests.harness.command.scenarios import find_scenario
    from loadtests.harness.run.options import command_of_run

    began, terminal = time.monotonic(), Terminal()
    # What the environment sets is part of the question, because each run inherits it.
    inherited = from_environment(Scenario) | from_environment(RunSettings)
    own_model = inherited.pop("model", "")
    inherited = {name: text for name, text in inherited.items() if name not in {"header", *SET_FOR_EACH_RUN}}
    texts = inherited | typed_texts(Scenario, options)
    scoring = GOALS[goal]
    if not {"rate", "trace"} & set(texts):
        texts = {**scoring.load, **texts}
    question = Question(
        engines=tuple(engine or ()),
        urls=tuple(url or ()),
        options=tuple(option or ()),
        models=tuple(model or filter(None, [own_model])),
        restart=restart,
        goal=goal,
        texts=texts,
        prices=parse_prices("\n".join(price or ())),
    )
    entered = _entrants(question)
    job = Job.of(find_scenario(scoring.scenario), texts, 1, ())
    place = (folder or RUNS / question.name).absolute()
    open_folder(place, question)

    def show(course: Course) -> None:
        if course.pairs:
            terminal.say(f"{course.winner} has run {len(course.pairs)} times next to the default since the race")
        else:
            print_table(terminal.console, variants_table(course, scoring.measure))

    code = NOT_ENOUGH
    with only_here(place), sigterm_is_ctrl_c():
        deadline = math.inf if budget is None else began + budget
        runner = TuneRunner(place, question, entered, job, terminal, deadline, load_timeout)
        terminal.say(f"{len(runner.variants)} variants, the default first: {place}")
        try:
            runner.run(show)
        except OutOfTime:
            terminal.say("The budget is over. The same command goes on.")
        except KeyboardInterrupt:
            code = INVALID
            terminal.say("stopped; what was measured is kept, and the same command goes on")
        if runner.course.race:
            document = tune_document(runner, command_of_run())
            code = INVALID if code == INVALID else document.exit_code
            deliver(replace(document, exit_code=GOOD), as_json=as_json, page=place / PAGE)
    raise typer.Exit(code)


def _entrants(question: Question) -> list[Entrant]:
    """Return the entrants. Raises `UserMistake` for contradictory settings, or an engine that cannot run here."""
    from enginebench.studies.tune.variants import entrants
    from loadtests.harness.command.contenders import contenders
    from loadtests.harness.command.engine_checks import checked

    if find_spec("polars") is None:  # missing from `make bundle`
        raise UserMistake("`tune` judges its runs, for which the packages are not here.")
    if GOALS[question.goal].priced and not question.prices:
        raise UserMistake(f"--for {question.goal} needs --price, in {CURRENCY.name} per hour.")
    if "slo" not in question.texts:
        raise UserMistake("`tune` needs an SLO, such as --slo ttft_p95=500ms,tpot_p95=50ms.")
    if question.restart and (question.engines or len(question.urls) != 1):
        raise UserMistake("--restart starts the server of one --url, and of no --engine.")
    own = question.options if question.engines else ()
    tested = contenders(question.engines, question.urls, own, question.models)
    chosen = {} if question.engines else options_by_engine(question.options, [""])[""]
    entered = entrants([replace(contender, restart=question.restart) for contender in tested], chosen)
    checked([entrant.default.contender for entrant in entered])
    if GOALS[question.goal].priced:
        _check_prices(question, [entrant.contender.name or entrant.contender.engine for entrant in entered])
    return entered


def _check_prices(question: Question, names: list[str]) -> None:
    """Raise `UserMistake` unless the prices are those of the contenders: costs are compared with costs only."""
    prices = dict(question.prices)
    if unknown := [label for label in prices if label and label not in names]:
        raise UserMistake(f"--price names `{unknown[0]}`; {choose_from(unknown[0], names)}")
    if lacking := [name for name in names if not prices.get(name, prices.get(""))]:
        raise UserMistake(f"--for {question.goal} needs a price above 0 of {lacking[0]}: --price {lacking[0]}=2.20.")
