"""A study in one file, to be carried to another machine: `enginebench study FILE` goes on with it there.

The folder without what was interrupted. The ending of the file's name says how it is compressed.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import msgspec

from enginebench.settings.schema import UserMistake
from enginebench.studies.study.folder import INTERRUPTED, LOCK, RUNNING, STUDY, StudyFacts, load_study

MODES = {".tar.gz": "gz", ".tgz": "gz", ".tar.xz": "xz", ".tar": ""}
LEFT_OUT = {INTERRUPTED, RUNNING, LOCK}


def is_archive(name: str) -> bool:
    return any(name.endswith(ending) for ending in MODES)


def check_archive(path: Path) -> None:
    """Before anything is measured. Raises `UserMistake`."""
    _mode(path)
    if not path.absolute().parent.is_dir():
        raise UserMistake(f"the folder of {path} does not exist.")


def check_replaces(path: Path, folder: Path) -> None:
    """An archive that exists is replaced by the same study alone, gone on. Raises `UserMistake`."""
    if not path.exists():
        return
    try:
        with tarfile.open(path) as archive:
            held = next((entry for entry in archive if Path(entry.name).parts[1:] == (STUDY,)), None)
            content = None if held is None else archive.extractfile(held)
            before = None if content is None else msgspec.json.decode(content.read(), type=StudyFacts).started_at
    except (tarfile.TarError, EOFError, msgspec.DecodeError):
        before = None
    if before != load_study(folder).facts.started_at:
        raise UserMistake(
            f"{path} is there and is not of this study, which would take its place: name another --archive."
        )


def pack(folder: Path, path: Path) -> None:
    """Replaces `path` in one step. Raises `OSError`."""
    name = folder.absolute().name

    def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = Path(entry.name).parts
        return None if len(parts) > 1 and parts[1] in LEFT_OUT else entry

    partial = path.with_name(f"{path.name}.partial")
    level = {"compresslevel": 6} if _mode(path) == "gz" else {}
    try:
        with tarfile.open(partial, f"w:{_mode(path)}", **level) as archive:  # type: ignore[call-overload]
            archive.add(folder, name, filter=wanted)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def unpack(path: Path, folder: Path) -> None:
    """Into a folder that does not exist yet. Raises `UserMistake`."""
    if folder.exists():
        raise UserMistake(
            f"{folder} exists: `enginebench study {folder}` goes on there; for the archive name another --folder."
        )
    into = folder.with_name(f".{folder.name}.unpacking")
    _remove(into)
    try:
        with tarfile.open(path) as archive:
            (top,) = {Path(name).parts[0] for name in archive.getnames()}
            archive.extractall(into, filter="data")  # nothing outside the folder
        if not (into / top / STUDY).is_file():
            raise UserMistake(f"{path} holds no study.")
        (into / top).rename(folder)
    except (tarfile.TarError, EOFError, ValueError) as error:
        if isinstance(error, UserMistake):
            raise
        raise UserMistake(f"{path} is no archive of a study ({error}).") from None
    except FileNotFoundError:
        raise UserMistake(f"the file {path} does not exist.") from None
    finally:
        _remove(into)


def name_in(path: Path) -> str:
    """`brief` of `lent/brief.tar.gz`: the folder that it becomes by default."""
    ending = next(ending for ending in MODES if path.name.endswith(ending))
    return path.name.removesuffix(ending)


def _mode(path: Path) -> str:
    mode = next((mode for ending, mode in MODES.items() if path.name.endswith(ending)), None)
    if mode is None:
        raise UserMistake(f"an archive's name ends in {', '.join(MODES)}, not as {path.name} does.")
    return mode


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
