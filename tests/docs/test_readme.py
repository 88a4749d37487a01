"""README's results are those of the committed records."""

import tarfile
from pathlib import Path

import enginebench

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "docs/results/baseline-amd-epyc-2-cores"
SLO = "ttft_p90=2,tpot_p90=0.2"


def test_answer_and_tables_come_from_the_records(tmp_path: Path) -> None:
    with tarfile.open(STUDY / "records.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    readme = (ROOT / "README.md").read_text()
    answers, tables = zip(*(_first_screen(tmp_path, part) for part in ("users", "best")), strict=True)
    assert answers[0] in readme
    example = readme.partition("## An example")[2].splitlines()
    rows = [row for row in example if row.startswith("|") and not row.startswith(("| engine", "| :"))]
    assert rows == [*tables[0], *tables[1]]


def _first_screen(folder: Path, part: str) -> tuple[str, list[str]]:
    """Return the answer of a part of the study, and the rows of its table without the cold start, which is last."""
    runs = enginebench.load(*sorted(folder.glob(f"*/runs/{part}.*")), slo=SLO)
    assert len(repr(runs)) < 200, "not all numbers"
    _, answer, *blocks = enginebench.report(runs).markdown().split("\n\n")
    table = next(block for block in blocks if block.startswith("|"))
    return answer.replace("\\", ""), [f"{row.rsplit(' | ', 1)[0]} |" for row in table.splitlines()[2:]]
