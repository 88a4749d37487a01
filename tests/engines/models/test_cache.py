"""Folders in the cache: whole or not there, built by one process at a time."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engines.contract.errors import EngineUnavailable
from engines.models.cache import built_once, cache_folder

ROOT = Path(__file__).parents[3]


def test_a_build_that_fails_leaves_nothing_and_the_next_one_succeeds(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        built_once(tmp_path / "model", fail)
    assert [path.name for path in tmp_path.iterdir()] == [".model.lock"], "what it wrote may have filled the disk"
    built = built_once(tmp_path / "model", lambda folder: folder.joinpath("whole").touch())
    assert [path.name for path in built.iterdir()] == ["whole"]


def test_what_is_built_is_not_built_again(tmp_path: Path) -> None:
    built: list[Path] = []
    assert [built_once(tmp_path / "model", built.append) for _ in range(2)] == [tmp_path / "model"] * 2
    assert len(built) == 1


def test_too_little_disk_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"GB free and 1000000000\.0 GB are needed; free some space"):
        built_once(tmp_path / "model", lambda folder: pytest.fail("built"), needs_bytes=10**18)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps programs that run from being written")
def test_what_a_link_leads_to_is_not_written(tmp_path: Path) -> None:
    running = Path(sys.executable).resolve()  # nobody may write it, not even root
    built = built_once(tmp_path / "modules", lambda folder: folder.joinpath("python").symlink_to(running))
    assert (built / "python").resolve() == running


BUILDER = """
import pathlib, sys, time
from engines.models.cache import built_once, cache_folder

def build(folder):
    with open(sys.argv[2], "a") as log:
        log.write("built\\n")
    (folder / "first").touch()
    time.sleep(float(sys.argv[3]))
    (folder / "last").touch()

built_once(pathlib.Path(sys.argv[1]), build)
"""


def builder(folder: Path, log: Path, seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", BUILDER, str(folder), str(log), str(seconds)], cwd=ROOT)


def test_two_processes_at_once_build_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    both = [builder(tmp_path / "model", log, 1.0) for _ in range(2)]
    assert [process.wait(30) for process in both] == [0, 0]
    assert log.read_text() == "built\n"
    assert (tmp_path / "model" / "last").exists()


def test_a_killed_build_is_never_used_and_done_anew(tmp_path: Path) -> None:
    folder, log = tmp_path / "model", tmp_path / "log"
    victim = builder(folder, log, 60)
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob(".model.unfinished/first")) and time.monotonic() < deadline:
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert not folder.exists()
    assert builder(folder, log, 0).wait(30) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["first", "last"]


def test_a_cache_that_cannot_be_written_gets_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineUnavailable, match=r"cannot write to .*/file/cache .*; set ENGINEBENCH_CACHE to a folder"):
        built_once(tmp_path / "file" / "cache" / "model", lambda folder: pytest.fail("built"))


def test_the_cache_moves_where_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENGINEBENCH_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("ENGINEBENCH_CACHE")
    assert cache_folder().name == "enginebench"
