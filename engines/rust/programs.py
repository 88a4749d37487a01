"""The engines written in Rust: programs that are built once for this machine and then reused.

    make engines                                       # both engines
    python -m engines.rust.programs build candle --features cuda

A program is kept in the user's cache under a name made of its sources, its flags and this machine's processor, so a
stale or foreign one is never run. Building needs cargo and takes some minutes; running needs neither.

The test suite sets ENGINEBENCH_RUST_PROFILE=quick to use its own programs, of Cargo's profile `quick`, which are built
in a fraction of the time, and are slower than the measured ones.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engines.contract.errors import EngineUnavailable
from engines.models.cache import built_once, cache_folder
from engines.models.progress import Progress, silent

WORKSPACE = Path(__file__).resolve().parent
FLAGS = "-C target-cpu=native"  # candle's and burn's arithmetic chooses its vectors when it is compiled
RELEASE = "release"
COMPILER = "compiler.txt"  # in a program's folder: compiler, flags and profile
NO_CARGO = "cargo was not found; install Rust from rustup.rs, then run `make engines`."


@dataclass(frozen=True, slots=True)
class Program:
    """A binary of the workspace: its package's folder is `folder`, its own name `enginebench-<name>`."""

    name: str
    folder: str

    @property
    def binary(self) -> str:
        return f"enginebench-{self.name}"

    @property
    def package(self) -> str:
        return f"enginebench-{self.folder}"

    @property
    def features(self) -> frozenset[str]:
        """Return the features that its Cargo.toml declares."""
        declared = tomllib.loads((WORKSPACE / self.folder / "Cargo.toml").read_text()).get("features", {})
        return frozenset(declared) - {"default"}


PROGRAMS = {
    program.name: program
    for program in (Program("echo", "protocol"), Program("candle", "candle"), Program("burn", "burn"))
}


def profile() -> str:
    """Return the Cargo profile with which programs are built and looked for."""
    return os.environ.get("ENGINEBENCH_RUST_PROFILE", RELEASE)


def find(name: str) -> Path | None:
    """Return the program, if it was built from exactly these sources for this machine; the latest if there are several.
    An image has its programs in the folder ENGINEBENCH_PROGRAMS, built with it. A folder's name ends with the features
    that its programs were built with: `+cuda`."""
    program = PROGRAMS[name]
    shipped = os.environ.get("ENGINEBENCH_PROGRAMS")
    if shipped and (path := Path(shipped) / program.binary).is_file():
        return path
    kept = (cache_folder() / "programs").glob(f"{_stem(program)}*/{program.binary}")
    return max(kept, key=lambda path: path.stat().st_mtime, default=None)


def build(name: str, features: Iterable[str] = (), *, progress: Progress = silent) -> Path:
    """Build the program, unless it exists, and return its path. Cargo prints its progress on standard error.

    Of `features`, the program gets those that it has. Raises `EngineUnavailable` if it cannot be built.
    """
    program = PROGRAMS[name]
    together = _built_together(program)
    chosen = sorted(set(features) & frozenset[str]().union(*(built.features for built in together)))
    folder = cache_folder() / "programs" / "+".join([_stem(program), *chosen])
    if not folder.is_dir() and cargo_environment() is None:
        raise EngineUnavailable(NO_CARGO)
    built_once(folder, lambda unfinished: _cargo_build(together, chosen, unfinished), progress=progress)
    os.utime(folder / program.binary)  # `find` returns the one that was requested last
    return folder / program.binary


def _built_together(program: Program) -> list[Program]:
    """Return the programs to build in one run of Cargo, which compiles shared code once, with the features of any of
    them.

    A program that is measured is built alone: burn's `x86-v4` would change candle's products of matrices.
    """
    return [program] if profile() == RELEASE else list(PROGRAMS.values())


def _cargo_build(programs: list[Program], features: list[str], into: Path) -> None:
    command = ["build", "--profile", profile(), "--locked"]
    for program in programs:
        command += ["--package", program.package, "--bin", program.binary]
        for feature in sorted(program.features & set(features)):
            command += ["--features", f"{program.package}/{feature}"]
    if cargo(command).returncode:
        names = ", ".join(program.name for program in programs)
        raise EngineUnavailable(f"cargo could not build {names}; the lines above say why.")
    for program in programs:
        shutil.copy2(_target() / profile() / program.binary, into / program.binary)
    version = cargo(["--version"], quiet=True).stdout.strip()  # the compiler's version, too
    (into / COMPILER).write_text(f"{version}, {_flags()}, {profile()}")


def cargo(arguments: list[str], *, quiet: bool = False) -> subprocess.CompletedProcess[str]:
    """Run cargo on the workspace, for this machine's processor; its output is shown, or captured if `quiet`.

    Raises `EngineUnavailable` if there is no cargo.
    """
    if (environment := cargo_environment()) is None:
        raise EngineUnavailable(NO_CARGO)
    environment = environment | {"RUSTFLAGS": _flags(), "CARGO_TARGET_DIR": str(_target())}
    return subprocess.run(
        ["cargo", *arguments],
        cwd=WORKSPACE,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=quiet,
        text=True,
        check=False,
    )


def _flags() -> str:
    return " ".join(filter(None, [os.environ.get("RUSTFLAGS"), FLAGS]))


def compiler_of(name: str) -> str | None:
    """Return the compiler, flags and profile of a program that was built on this machine."""
    path = find(name)
    file = None if path is None else path.with_name(COMPILER)
    return file.read_text() if file is not None and file.is_file() else None


def _target() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR") or cache_folder() / "cargo-target")


@cache
def cargo_environment() -> dict[str, str] | None:
    """Return variables under which cargo runs here; `None` if it does not.

    Cargo may be rustup's proxy, which finds no toolchain if HOME is changed, by sudo or for a test. Then RUSTUP_HOME is
    set to the folder in the account's own home.
    """
    if shutil.which("cargo") is None:
        return None
    accounts: list[dict[str, str]] = []
    with contextlib.suppress(KeyError, OSError, RuntimeError):  # a user without an account
        accounts = [{"RUSTUP_HOME": str(Path(f"~{getpass.getuser()}").expanduser() / ".rustup")}]
    for more in ({}, *accounts):
        environment = {**os.environ, **more}
        if subprocess.run(["cargo", "--version"], env=environment, capture_output=True, check=False).returncode == 0:
            return environment
    return None


def _stem(program: Program) -> str:
    name = program.name if profile() == RELEASE else profile()
    return f"{name}-{_fingerprint(_built_together(program))}"


def _fingerprint(programs: list[Program]) -> str:
    """Return a hash of the sources, the flags and the processor."""
    digest = hashlib.sha256(f"{FLAGS} {os.environ.get('RUSTFLAGS', '')} {_processor()}".encode())
    for folder in sorted({"protocol", *(program.folder for program in programs)}):
        for path in sorted((WORKSPACE / folder).rglob("*")):
            if path.is_file() and path.suffix in {".rs", ".toml"}:
                digest.update(str(path.relative_to(WORKSPACE)).encode() + b"\0" + path.read_bytes())
    for name in ("Cargo.toml", "Cargo.lock"):
        digest.update((WORKSPACE / name).read_bytes())
    return digest.hexdigest()[:16]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as cpuinfo:
            names = ("model name", "flags", "Features")
            return platform.machine() + "".join(sorted({line for line in cpuinfo if line.startswith(names)}))
    except OSError:
        return platform.machine() + platform.processor()


def main(arguments: list[str]) -> int:
    """Run `build [NAME …] [--features a,b]`, or `cargo ARGUMENT …`."""
    import argparse

    from engines.models.progress import terminal_progress

    parser = argparse.ArgumentParser(
        "python -m engines.rust.programs", description="Build the engines written in Rust."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("build", help="build programs, unless they are there")
    making.add_argument("name", nargs="*", choices=[[], *PROGRAMS], help=f"of {', '.join(PROGRAMS)}; all by default")
    making.add_argument(
        "--features", default="", help="separated by commas: docs/engines.md says which program has which"
    )
    commands.add_parser("cargo", help="run cargo on the sources: `cargo test`, `cargo clippy -- -D warnings`")
    if arguments[:1] == ["cargo"]:
        return _pass_on(arguments[1:])  # as they are
    parsed = parser.parse_args(arguments)
    features = [feature for feature in parsed.features.split(",") if feature]
    declared = frozenset[str]().union(*(program.features for program in PROGRAMS.values()))
    if unknown := [feature for feature in features if feature not in declared]:
        print(f"no program has the feature {unknown[0]}; choose from {', '.join(sorted(declared))}.", file=sys.stderr)
        return 2
    try:
        with terminal_progress() as progress:
            for name in parsed.name or PROGRAMS:
                path = build(name, features, progress=progress)
                print(f"{name}: {path}", file=sys.stderr)
    except EngineUnavailable as error:
        print(f"the Rust engines are skipped: {error}", file=sys.stderr)
        return 0 if str(error) == NO_CARGO else 2
    return 0


def _pass_on(arguments: list[str]) -> int:
    try:
        return cargo(arguments).returncode
    except EngineUnavailable as error:
        print(f"the Rust engines are skipped: {error}", file=sys.stderr)
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
