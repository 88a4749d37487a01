"""Publish a study's folder as a committed result: report, tidy frame, grid, and the records.

    python -m enginebench.studies.publish runs/baseline docs/results          # docs/results/baseline-amd-epyc-2-cores/
    python -m enginebench.studies.publish runs/baseline-1b docs/results --name baseline-1b-amd-epyc-2-cores

The report is rebuilt from the records. `records.tar.xz` has everything that `enginebench study` needs to continue. The
same folder gives the same tables, frame and archive, byte for byte.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from enginebench.records.files import LOCUST_LOG
from enginebench.settings.schema import UserMistake
from enginebench.studies.report import write_report
from enginebench.studies.study.folder import BENCH, CELLS, DISTURBED, RUNS, SITTINGS, STUDY, load_study

RECORDS = "records.tar.xz"
KEPT = (STUDY, SITTINGS, CELLS)
LEFT_OUT = {"requests.parquet", "requests.parquet.json", "summary.json", "report.html", LOCUST_LOG}  # derived or logs


def publish(folder: Path, results: Path, name: str = "") -> Path:
    """Rebuild the report of a study and copy it and its records to a folder named `name`, or by study and machine.

    Raises `NotAStudy`, and `UserMistake` if the study's folder cannot be written to.
    """
    document, written = write_report(folder, continued=Path(RECORDS))
    if not name:  # `baseline-amd-epyc-2-cores`
        hardware = document.tested.hardware[0]
        machine = hardware.gpus or f"{hardware.cpu} {hardware.cores or ''} cores"
        machine = re.sub(r"\((r|tm)\)|\b(cpu|processor)\b", "", machine.lower())
        name = f"{load_study(folder).facts.name}-{re.sub(r'[^a-z0-9]+', '-', machine).strip('-')}"
    place = results / name
    if place.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise UserMistake(f"{place} holds the study itself: name another folder for the results.")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for path in [*written, *(folder / name for name in KEPT if (folder / name).exists())]:
        copy = place / path.relative_to(folder)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, copy)
    with tarfile.open(place / RECORDS, "w:xz", format=tarfile.GNU_FORMAT) as archive:
        for path in _records(folder):
            entry = tarfile.TarInfo(f"{folder.resolve().name}/{path.relative_to(folder)}")  # without times and owners
            entry.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(entry, file)
    return place


def _records(folder: Path) -> Iterator[Path]:
    for name in KEPT:
        if (folder / name).exists():
            yield folder / name
    for room in (RUNS, DISTURBED, BENCH):
        paths = (path for path in (folder / room).rglob("*") if path.is_file() and not path.is_symlink())
        yield from sorted(path for path in paths if path.name not in LEFT_OUT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the study's folder")
    parser.add_argument("results", type=Path, nargs="?", default=Path("docs/results"), help="default: %(default)s")
    parser.add_argument("--name", default="", help="of the new folder; default: the study and its processor or GPUs")
    arguments = parser.parse_args()
    try:
        place = publish(arguments.folder, arguments.results, arguments.name)
    except UserMistake as mistake:
        sys.exit(str(mistake))
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    print(f"{place}: {', '.join(sorted(path.name for path in place.iterdir()))} ({size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
