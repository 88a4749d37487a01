"""What SGLang is given exists in the published source of the pinned version. It is fetched, and not imported."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from enginebench.settings.schema import from_text
from engines.contract.base import GenerateRequest, Model
from engines.libraries.sglang import SglangEngine, SglangOptions

pytestmark = pytest.mark.own_environment

EVERYTHING = {"quantization": "fp8", "context": "2048", "speculative_tokens": "4", "prefill_context_parallel": "2"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sglang")
    packages = SglangEngine.environment.cuda
    assert packages is not None
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", str(folder)]
    subprocess.run([*command, *packages.packages], check=True)
    return folder / "sglang"


def class_named(name: str, file: Path) -> ast.ClassDef:
    tree = ast.parse(file.read_text())
    return next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)


def parameters(of: ast.ClassDef, name: str) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    function = next(node for node in of.body if isinstance(node, kinds) and node.name == name)
    return {one.arg for one in (*function.args.args, *function.args.kwonlyargs)}


def fields(tree: ast.AST) -> set[str]:
    """Names with a type, of a class or of all classes of a module."""
    found = (node.target for node in ast.walk(tree) if isinstance(node, ast.AnnAssign))
    return {name.id for name in found if isinstance(name, ast.Name)}


@pytest.mark.parametrize("more", [{}, {"draft_model": "/models/small"}], ids=["n-grams", "a draft model"])
def test_every_argument_is_one_of_the_servers(source: Path, tmp_path: Path, more: dict[str, str]) -> None:
    engine = SglangEngine(None, from_text(SglangOptions, EVERYTHING | more))
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    given = engine.arguments(Model("m", tmp_path, random_weights=True))
    declared = (source / "srt" / "arg_groups" / "fields").glob("*.py")  # of which `ServerArgs` is assembled
    assert given.keys() <= set().union(*(fields(ast.parse(file.read_text())) for file in declared))


def test_every_sampling_parameter_exists(source: Path) -> None:
    engine = SglangEngine(None, SglangOptions())
    engine.context_length = 4096
    request = GenerateRequest("", (1,), 4, temperature=1.0, seed=1, stop=("a",), min_tokens=1, ignore_eos=True)
    declared = class_named("SamplingParams", source / "srt" / "sampling" / "sampling_params.py")
    accepted = fields(declared) or parameters(declared, "__init__")
    assert engine.sampling(request).keys() <= accepted


def test_a_stream_is_asked_for_as_it_is_declared(source: Path) -> None:
    engine = class_named("Engine", source / "srt" / "entrypoints" / "engine.py")
    assert {"input_ids", "sampling_params", "stream", "rid"} <= parameters(engine, "async_generate")
