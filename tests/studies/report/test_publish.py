from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from enginebench.records.profile import Hot, Profile, write_profiles
from enginebench.studies.report import publish as publishing
from enginebench.studies.report.contents import StudyReport
from enginebench.studies.report.document import CARD, FILES, PICTURE
from enginebench.studies.report.publish import lay_out, slug
from enginebench.studies.study.folder import load_study


def laid_out(folder: Path, report: StudyReport, results: Path, name: str = "") -> Path:
    """Without making the report again, which is in the folder."""
    return lay_out(report, folder, [folder / name for name in (*FILES, CARD, PICTURE)], results, name)


def test_what_is_published_is_the_same_twice(tmp_path: Path, folder: Path, report: StudyReport) -> None:
    places = [laid_out(folder, report, tmp_path / name) for name in ("one", "two")]
    assert [place.name for place in places] == ["brief-test-2-cores"] * 2
    assert {path.name for path in places[0].iterdir()} >= {"report.html", "card.svg", "study.json", "cells.jsonl"}
    for name in ("report.md", "frame.parquet", "records.tar.xz"):
        assert (places[0] / name).read_bytes() == (places[1] / name).read_bytes(), name


def test_the_records_are_the_study(tmp_path: Path, folder: Path, report: StudyReport) -> None:
    place = laid_out(folder, report, tmp_path, "brief-1b")
    assert place.name == "brief-1b"
    with tarfile.open(place / "records.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    found = load_study(tmp_path / "brief")
    assert len(found.with_outcome("done")) == len(report.source.parts[0].runs) + 3 + 6  # own server, two with lengths
    assert not list((tmp_path / "brief").rglob("*.parquet"))


def test_records_that_are_too_large_are_named_by_their_hash(
    tmp_path: Path, folder: Path, report: StudyReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "MOST_BYTES", 1000)
    place = laid_out(folder, report, tmp_path)
    assert not (place / "records.tar.xz").exists()
    lines = (place / "records.sha256").read_text().splitlines()
    assert any(line.endswith("  runs/users.smollm2-135m.candle.1/requests-0.jsonl") for line in lines)


def test_links_to_profiles_lead_somewhere(tmp_path: Path, folder: Path) -> None:
    study = tmp_path / "study"
    shutil.copytree(folder, study)
    run = study / "runs/users.smollm2-135m.candle.1"
    hot = (Hot("matmul", 0.5),)
    found = Profile("py-spy", "candle", "engine", "functions, by time", "8 users", 1.0, hot=hot, picture="a.svg")
    write_profiles(run, [found, replace(found, of="server", picture=None, files=("b.json",))])
    (run / "profile/a.svg").write_text("<svg/>")
    (run / "profile/b.json").write_text("{}")
    place = publishing.publish(study, tmp_path / "results")
    links = re.findall(r'href="(runs/[^"]+)"', (place / "report.html").read_text())
    assert [link.rpartition("/")[2] for link in links] == ["a.svg", "b.json"]
    assert all((place / link).is_file() for link in links)
    assert all(f"({link})" in (place / "report.md").read_text() for link in links)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        pytest.param("AMD EPYC, 2 cores, 23.5 GiB, no GPU", "amd-epyc-2-cores", id="no GPU"),
        pytest.param("Xeon, 8 cores, 64 GiB, 2 × NVIDIA L4", "xeon-8-cores-2-nvidia-l4", id="GPUs"),
        pytest.param("Intel(R) Xeon(R) Processor, 2 cores, 23.5 GiB, no GPU", "intel-xeon-2-cores", id="Intel's name"),
    ],
)
def test_a_machine_has_a_short_name(machine: str, expected: str) -> None:
    assert slug(machine) == expected
