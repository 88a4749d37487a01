"""Which tool a file is from, by what is in it, and the reader for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analysis.importers import guidellm, vllm_bench
from analysis.importers.results import NotImportable, Results

KNOWN = "guidellm's benchmarks.json, and the JSON of vllm bench serve"


def read(path: Path) -> Results:
    """Raises `NotImportable`, and `OSError` where the file cannot be read."""
    document = _document(path)
    for fits, reader in ((guidellm.is_guidellm, guidellm.read), (vllm_bench.is_vllm, vllm_bench.read)):
        try:
            if fits(document):
                return reader(document)
        except NotImportable as error:
            raise NotImportable(f"{path} {error}") from None
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise NotImportable(f"{path} looks like a known format but cannot be read ({error!r}).") from None
    raise NotImportable(f"{path} has an unknown format; known are {KNOWN}.")


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:  # its repr() would be the whole file
        raise NotImportable(f"{path} is not text in UTF-8: convert it first.") from None
    except ValueError as error:
        raise NotImportable(f"{path} is not JSON ({error}); known are {KNOWN}.") from None
    return document if isinstance(document, dict) else {}
