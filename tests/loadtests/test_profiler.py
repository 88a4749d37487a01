"""The command of `--profile`: what is accepted, what it is run as, and a real profiler where one is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

from enginebench.settings.schema import UserMistake
from loadtests.harness.profiler import ProfileFailed, Profiler

SPIN = "def hot_function():\n    for _ in range(10**6): pass\nprint('on', flush=True)\nwhile True: hot_function()\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(
            "perf record sleep 10", "--profile is py-spy, nsys or a command that contains {pid}", id="no process"
        ),
        pytest.param("", "--profile is py-spy, nsys or a command", id="nothing"),
        pytest.param("perf '{pid}", "--profile cannot be read: No closing quotation.", id="an open quote"),
        pytest.param("no-such-profiler {pid}", "the profiler no-such-profiler is not installed.", id="not installed"),
    ],
)
def test_a_mistake_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserMistake) as raised:
        Profiler.of(text)
    assert str(raised.value).startswith(sentence)


def test_placeholders_are_filled_and_files_lie_in_the_folder(tmp_path: Path) -> None:
    profiler = Profiler.of("""sh -c 'echo of $0 > $1.txt; echo here > relative; echo printed' {pid} {output}""")
    output = profiler.output(tmp_path / "profile")
    profiler.attach(17, output)
    files = {path.name: path.read_text() for path in (tmp_path / "profile").iterdir()}
    assert files == {"sh.txt": "of 17\n", "relative": "here\n", "sh.log": "printed\n"}
    assert profiler.prefix(output) == ()


def test_a_profiler_that_fails_says_why(tmp_path: Path) -> None:
    profiler = Profiler.of("sh -c 'echo; echo no permission. >&2; exit 3' {pid}")
    with pytest.raises(ProfileFailed, match=r"^sh failed: no permission \(.*sh\.log\)\.$"):
        profiler.attach(17, profiler.output(tmp_path))


def test_one_that_starts_the_engine_keeps_off_its_standard_output(tmp_path: Path) -> None:
    profiler = Profiler.of("""sh -c 'echo profiling to $0; exec "$@"' {output} {command}""")
    command = [*profiler.prefix(tmp_path / "it"), "echo", "the protocol"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("the protocol\n", f"profiling to {tmp_path}/it\n")


def test_py_spy_sees_where_a_process_spends_its_time(tmp_path: Path) -> None:
    try:
        preset = Profiler.of("py-spy")
    except UserMistake:
        pytest.skip("py-spy is not installed")
    profiler = Profiler(tuple("1" if word == "10" else word for word in preset.words))  # second
    output = profiler.output(tmp_path)
    with subprocess.Popen([sys.executable, "-S", "-c", SPIN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            profiler.attach(process.pid, output)
        except ProfileFailed as failure:
            if "ermission" in str(failure):
                pytest.skip("this machine lets no process be attached to")
            raise
        finally:
            process.kill()
    assert "hot_function" in output.with_suffix(".svg").read_text()
