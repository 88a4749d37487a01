from pathlib import Path

from enginebench.analysis.data.graded import Graded, graded_by_load
from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import summarise
from tests.support.analysis.synthetic import meta_of, record, stages_of, write_run


def test_the_same_questions_are_compared_over_loads_and_repeats(tmp_path: Path) -> None:
    """Alone, questions 0 to 7 are right in every run. With 4 users, 0 to 6 are lost and 8 is gained in both runs; with
    16 users, 0 is lost in one of two runs. A second answer to a question in a stage does not count."""
    stages = stages_of((1, 4, 16), 5.0)
    right = {0: [set(range(8))] * 2, 1: [{7, 8}] * 2, 2: [set(range(8)), set(range(1, 8))]}
    runs = []
    for repeat in range(2):
        records = [
            record(
                number, (stage * 50 + 12 + number + 20 * again) * 10**8, stage=stage, prompt_id=f"p{number}",
                correct=number in right[stage][repeat] if not again else False,
            )
            for stage in range(3)
            for number in range(10)
            for again in range(2)
        ]  # fmt: skip
        run = load_run(write_run(tmp_path / str(repeat), meta_of(stages, repeat=repeat), records))
        runs.append((run.table, summarise(run).stages))
    assert graded_by_load(runs) == (
        Graded("1 user", 10, 8),
        Graded("4 users", 10, 2, 10, 8, 7, 1, 2 * (2 * 9 / 2**8)),
        Graded("16 users", 10, 7, 10, 8, 1, 0, 1.0),
    )
    assert graded_by_load([(tmp_path / "none", ())]) == ()
