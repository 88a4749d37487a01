"""The facts about the machine."""

from pathlib import Path

import pytest

from loadtests.harness.run.host import host_facts


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("model name\t: AMD EPYC\nflags\t\t: fpu avx avx2 fma\n", "AMD EPYC (AVX2)"),
        ("model name\t: AMD EPYC\nflags\t\t: avx2 avx512f avx512_bf16\n", "AMD EPYC (AVX-512 with bfloat16)"),
        ("model name\t: Xeon\nflags\t\t: avx2 avx512f avx512_bf16 amx_bf16 amx_tile\n", "Xeon (AMX)"),
        ("model name\t: Neoverse-N1\nFeatures\t: fp asimd evtstrm\n", "Neoverse-N1 (NEON)"),
        ("model name\t: Old\nflags\t\t: fpu sse2\n", "Old"),
    ],
)
def test_a_processor_is_named_with_its_vector_instructions(
    monkeypatch: pytest.MonkeyPatch, cpuinfo: str, name: str
) -> None:
    """Virtual machines with one name differ in them."""
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: cpuinfo)
    assert host_facts.__wrapped__()["cpu"] == name
