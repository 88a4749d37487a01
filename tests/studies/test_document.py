"""The document of a whole study, of the records of simulated engines."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from enginebench.analysis.answer import BestAnswer, ReplicasAnswer
from enginebench.analysis.document import Block, Document, Table
from enginebench.analysis.settings import PlanSettings
from enginebench.analysis.write.cells import show
from enginebench.cli import app
from enginebench.records.load import Users
from enginebench.records.slo import parse_objectives
from enginebench.studies.publish import publish
from enginebench.studies.report import study_document
from enginebench.studies.source import read_source
from enginebench.studies.study.archive import unpack
from enginebench.studies.study.folder import load_study
from tests.support.studies import GRID, SLO_TEXTS, write_study


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("study") / "study", loads=(1, 4), seconds=4.0)


@pytest.fixture(scope="module")
def document(folder: Path) -> Document:
    return study_document(read_source(load_study(folder)))


def rows(block: Block) -> list[list[str]]:
    assert isinstance(block, Table)
    return [[show(cell).line for cell in row] for row in block.rows]


def blocks(document: Document, key: str) -> tuple[Block, ...]:
    (section,) = (section for section in document.sections if section.key == key)
    return section.blocks


def test_the_part_with_most_loads_answers(document: Document) -> None:
    assert document.title == GRID.title
    answer = document.answer
    assert isinstance(answer, BestAnswer)
    assert (answer.best.name, answer.next.name, answer.stage) == ("candle", "vllm", "4 users")
    assert document.candidates is not None
    assert [row[0] for row in rows(document.candidates)] == ["candle", "vllm", "pytorch-baseline"]
    assert document.exit_code == 0


def test_a_peak_is_planned_if_several_loads_were_measured(folder: Path) -> None:
    plan = PlanSettings(peak=Users(80), slo=parse_objectives(SLO_TEXTS))
    source = replace(read_source(load_study(folder)), plan=plan)
    answers = [study_document(replace(source, parts=parts)).answer for parts in (source.parts, source.parts[1:])]
    assert [type(answer) for answer in answers] == [ReplicasAnswer, BestAnswer]


def test_every_other_part_and_the_engines_own_servers_have_sections(document: Document) -> None:
    lengths = rows(blocks(document, "part-lengths-smollm2-135m")[0])
    assert [row[0] for row in lengths] == ["candle", "pytorch-baseline"]
    titles = [block.title for block in blocks(document, "own-servers") if isinstance(block, Table)]
    pairs = ("vllm-own-server over vllm", "vllm over vllm-own-server")
    assert titles == [f"1 to 16 users: {pair} at 4 users" for pair in pairs]


def test_what_was_not_measured_has_its_reason(document: Document) -> None:
    reasons = [
        ["GPU engines", "this machine has no GPU"],
        ["vllm with smollm2-135m: lengths (3 cells, failed)", "the server ended while it loaded (exit code 1)."],
        *(
            [f"{engine} with llama-3.2-1b: {parts} cells, skipped)", "it needs 6.2 GiB and 4.1 GiB are free."]
            for engine, parts in (
                ("pytorch-baseline", "users, lengths (6"),
                ("candle", "users, lengths (6"),
                ("vllm", "users, lengths (6"),
                ("vllm-own-server", "users (3"),
            )
        ),
    ]
    assert sorted(rows(blocks(document, "missing")[0])) == sorted(reasons)


def test_the_status_counts_every_cell(folder: Path) -> None:
    shown = CliRunner().invoke(app, ["study", "status", str(folder)]).stdout
    assert "failed: vllm: the server ended while it loaded (exit code 1).\n" in shown
    assert shown.splitlines()[-1].startswith("18 of 42 cells done, 21 skipped, 3 failed; ")


def test_a_published_study_continues_from_its_archive(folder: Path, tmp_path: Path) -> None:
    interrupted = tmp_path / "interrupted"
    shutil.copytree(folder, interrupted)
    cells = (interrupted / "cells.jsonl").read_text().splitlines(keepends=True)
    (interrupted / "cells.jsonl").write_text("".join(cells[:-1]))
    place = publish(interrupted, tmp_path / "results", "small")
    assert "enginebench study records.tar.xz" in (place / "report.md").read_text()
    unpack(place / "records.tar.xz", tmp_path / "unpacked")
    source = read_source(load_study(tmp_path / "unpacked"))
    assert study_document(source).answer == study_document(read_source(load_study(interrupted))).answer
    before = (place / "records.tar.xz").read_bytes()
    assert (publish(interrupted, tmp_path / "results", "small") / "records.tar.xz").read_bytes() == before


def test_the_frame_has_every_part(document: Document) -> None:
    assert set(document.frame["study"]) == {"baseline"}
    assert set(document.frame["part"]) == {"users", "lengths"}
