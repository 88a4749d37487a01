"""The Rust side of the line protocol, held against the Python side by the same recorded conversations."""

import hashlib
import json
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.contract.errors import EngineUnavailable
from engines.contract.protocol import decode_to_child, decode_to_parent, encode
from engines.models.cache import built_once, cache_folder
from engines.rust import programs as rust_programs

ECHO = pytest.mark.xdist_group("echo")
RECORDED = Path(__file__).parents[2] / "data" / "protocol"


def _recorded(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Who spoke, and what."""
    lines = (RECORDED / name).read_text(encoding="utf-8").splitlines()
    return [next(iter(json.loads(line).items())) for line in lines]


@pytest.mark.parametrize(
    ("who", "message"), _recorded("messages.jsonl") + _recorded("echo.jsonl"), ids=lambda value: str(value)[:60]
)
def test_every_recorded_message_survives_being_read_and_written(who: str, message: dict[str, Any]) -> None:
    read = decode_to_child if who == "parent" else decode_to_parent
    assert json.loads(encode(read(json.dumps(message).encode()))) == message


@pytest.fixture(scope="module")
def echo(rust_program: Callable[[str], Path]) -> Path:
    return rust_program("echo")


@ECHO
def test_the_echo_engine_holds_the_recorded_conversation(echo: Path) -> None:
    with subprocess.Popen([echo], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for turn in _turns(_recorded("echo.jsonl")):
            if turn[0][0] == "parent":
                child.stdin.writelines(json.dumps(message).encode() + b"\n" for _, message in turn)
                child.stdin.flush()
            else:
                heard = [json.loads(child.stdout.readline()) for _ in turn]
                assert _by_answer(heard) == _by_answer([message for _, message in turn])
        child.stdin.close()
        assert child.wait(10) == 0, "the end of its input is the end of the engine"


def _turns(conversation: list[tuple[str, dict[str, Any]]]) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    turn: list[tuple[str, dict[str, Any]]] = []
    for line in conversation:
        if turn and turn[-1][0] != line[0]:
            yield turn
            turn = []
        turn.append(line)
    yield turn


def _by_answer(messages: list[dict[str, Any]]) -> dict[Any, list[dict[str, Any]]]:
    """Lines of different answers may be mixed: they are compared answer by answer."""
    answers = defaultdict(list)
    for message in messages:
        answers[message.get("id")].append(message)
    return answers


@ECHO
def test_the_rust_side_passes_its_tests(echo: Path) -> None:
    """Once for the same sources, recordings and compiler, as `go test` does: to compile them takes minutes of CPU."""
    compiler = rust_programs.cargo(["--version"], quiet=True).stdout
    recorded = [path.read_text(encoding="utf-8") for path in sorted(RECORDED.iterdir())]
    facts = repr((sorted(map(rust_programs._stem, rust_programs.PROGRAMS.values())), compiler, recorded))

    def run(passed: Path) -> None:
        # Not the documentation and the examples; with the programs' profile, so that no dependency is compiled again.
        profile = ["--profile", rust_programs.profile()]
        done = rust_programs.cargo(
            ["test", "--locked", "--quiet", "--workspace", "--lib", "--bins", "--tests", *profile], quiet=True
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"

    built_once(cache_folder() / "suite" / f"rust-tests-{hashlib.sha256(facts.encode()).hexdigest()[:16]}", run)


def test_without_cargo_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENGINEBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(rust_programs, "cargo_environment", lambda: None)
    with pytest.raises(EngineUnavailable, match=r"install Rust from rustup\.rs, then run `make engines`"):
        rust_programs.build("echo")


@pytest.mark.parametrize(("profile", "builds"), [("release", 3), ("quick", 1)])
def test_programs_that_are_measured_are_built_one_by_one_and_those_of_the_suite_together(
    profile: str, builds: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[list[str]] = []

    def cargo(arguments: list[str], *, quiet: bool = False) -> subprocess.CompletedProcess[str]:
        if arguments == ["--version"]:
            return subprocess.CompletedProcess(arguments, 0, "cargo 1.95.0\n")
        commands.append(arguments)
        folder = tmp_path / "target" / profile
        folder.mkdir(parents=True, exist_ok=True)
        for program in rust_programs.PROGRAMS.values():
            (folder / program.binary).write_text(profile)
        return subprocess.CompletedProcess(arguments, 0)

    monkeypatch.setattr(rust_programs, "cargo", cargo)
    monkeypatch.setattr(rust_programs, "cargo_environment", dict)
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / "target"))
    monkeypatch.setenv("ENGINEBENCH_CACHE", str(tmp_path))
    for other in ("release", "quick"):
        monkeypatch.setenv("ENGINEBENCH_RUST_PROFILE", other)
        assert rust_programs.find("candle") is None
    monkeypatch.setenv("ENGINEBENCH_RUST_PROFILE", profile)
    built = [rust_programs.build(name) for name in rust_programs.PROGRAMS]
    assert built == [rust_programs.find(name) for name in rust_programs.PROGRAMS]
    assert rust_programs.compiler_of("candle") == f"cargo 1.95.0, {rust_programs._flags()}, {profile}"
    assert len(commands) == builds
    assert commands[0][:4] == ["build", "--profile", profile, "--locked"]
    monkeypatch.setenv("ENGINEBENCH_RUST_PROFILE", "quick" if profile == "release" else "release")
    assert rust_programs.find("candle") is None, "those of the other profile are other programs"


def test_a_changed_source_makes_another_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    workspace = tmp_path / "rust"
    shutil.copytree(rust_programs.WORKSPACE, workspace, ignore=shutil.ignore_patterns("target"))
    monkeypatch.setattr(rust_programs, "WORKSPACE", workspace)
    monkeypatch.setenv("ENGINEBENCH_CACHE", str(tmp_path))
    program = rust_programs.PROGRAMS["echo"]
    built = tmp_path / "programs" / rust_programs._stem(program) / program.binary
    built.parent.mkdir(parents=True)
    built.touch()
    assert rust_programs.find("echo") == built
    (workspace / "protocol" / "src" / "lib.rs").write_text("// changed\n")
    assert rust_programs.find("echo") is None, "a stale program is never run"
