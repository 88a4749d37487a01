"""The command line: mistyped commands, and output that cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from enginebench.cli import app
from enginebench.settings.console import stdout

COMMAND = f"{sys.executable} -m enginebench engines fake"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        pytest.param(">&-", 0, "", id="standard output is closed"),
        pytest.param(">&- 2>&-", 0, "", id="both are closed"),
        pytest.param(
            ">/dev/full",
            2,
            "the output cannot be written: No space left on device.\n",
            id="the disk is full",
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full"),
        ),
    ],
)
def test_output_that_cannot_be_written_is_no_verdict_and_no_traceback(
    redirected: str, code: int, said: str, unbuffered: str
) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"{COMMAND} {redirected}"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    )
    assert (done.returncode, done.stderr) == (code, said)


def test_a_reader_that_has_enough_is_no_verdict() -> None:
    """Rich would exit with 1."""
    with pytest.raises(BrokenPipeError):
        stdout().on_broken_pipe()


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("quik", "no command called `quik`; did you mean `quick`?"),
        ("xyzzy", "no command called `xyzzy`; choose from quick, study, tune, run, "),
    ],
)
def test_a_command_that_is_not_there_gets_the_choices(typed: str, answer: str) -> None:
    done = CliRunner().invoke(app, [typed])
    assert done.exit_code == 2
    assert done.stderr.startswith(answer)


def test_a_paragraph_of_a_help_page_is_broken_only_where_the_terminal_ends() -> None:
    done = CliRunner().invoke(app, ["study", "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert "even a power cut, costs only the\n cell that was running: the same command resumes" in "\n".join(
        line.rstrip() for line in done.stdout.splitlines()
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("run --stagess 4", "no option called `--stagess`; did you mean `--stages`?"),
        ("serve fake --xyzzy", "no option called `--xyzzy`; `root serve --help` lists them."),
        ("serve", "missing argument `ENGINE`. See `root serve --help`."),
        ("gate runs --baseline", "option `--baseline` requires an argument. See `enginebench --help`."),
        (
            "run rate http://127.0.0.1:1 --users 4",
            "this scenario sends requests at a rate: set it with --rate, or test users with `concurrent`.",
        ),
        *(
            (
                f"run capacity http://127.0.0.1:1 {name}",
                "--stages has no effect in a search for capacity (--by), which chooses its own loads: leave it out.",
            )
            for name in ("--users 4", "-u 4", "--concurrency=4")
        ),
        ("run concurrent vllm", "`vllm` is not the address of a server; to serve an engine: --engine vllm"),
    ],
)
def test_a_usage_mistake_is_one_sentence_and_exit_code_two(words: str, sentence: str) -> None:
    done = CliRunner().invoke(app, words.split())
    assert (done.exit_code, done.stderr) == (2, f"{sentence}\n")
