"""Tests for analysis.report.library."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import Environment, FileSystemLoader

from analysis.report import library


def test_compiled_templates_are_shared_by_installations_and_made_anew_when_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "CACHE", tmp_path / "cache")
    pages = []
    for place, text in (("one", "{{ a }}"), ("two", "{{ a }}"), ("two", "{{ a }}!")):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "page.j2").write_text(text)
        environment = Environment(
            loader=FileSystemLoader(tmp_path / place), autoescape=True, bytecode_cache=library.CompiledTemplates()
        )
        pages.append(environment.get_template("page.j2").render(a=1))
    assert pages == ["1", "1", "1!"]
    assert len(list((tmp_path / "cache").iterdir())) == 1
