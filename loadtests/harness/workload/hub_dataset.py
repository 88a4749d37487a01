"""Read datasets on Hugging Face by name, through the rows API of its dataset viewer.

    hf:OWNER/NAME[:CONFIG[:SPLIT]]

https://huggingface.co/docs/dataset-viewer/rows. The rows are kept in the user's cache folder, so later runs and the
other client processes need no network.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from enginebench.records.files import write_atomically
from enginebench.settings.schema import UserMistake, choose_from

logger = logging.getLogger(__name__)

PREFIX = "hf:"
NAME = re.compile(r"hf:(?P<dataset>[\w.-]+(?:/[\w.-]+)?)(?::(?P<config>[^:]+)(?::(?P<split>[^:]+))?)?")
VIEWER = "https://datasets-server.huggingface.co"
PAGE = 100  # rows: the API's maximum
MAX_PAGES = 50  # spread evenly over longer splits
TIMEOUT = 30.0  # seconds
RETRIED, PAUSES = (429, 500, 502, 503, 504), (1.0, 4.0)  # seconds before another attempt: the viewer limits its rate


def hub_rows(name: str) -> Path:
    """Return the file of a dataset's rows, and download it if it is not in the cache. Raises `UserMistake`."""
    parts = NAME.fullmatch(name)
    if parts is None:
        raise UserMistake(f"a dataset on Hugging Face is hf:OWNER/NAME, optionally with :CONFIG:SPLIT, not `{name}`.")
    path = user_cache_path("enginebench") / "datasets" / (re.sub(r"[^\w.-]", "--", name) + ".jsonl")
    if not path.exists():
        rows = list(_rows(name, **_part(name, **parts.groupdict())))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
        logger.info("%s: %d rows, kept in %s", name, len(rows), path)
    return path


def _part(name: str, dataset: str, config: str | None, split: str | None) -> dict[str, str]:
    """Return the parameters of a split: those named, the only ones, or `default` and `train`. Raises `UserMistake`."""
    splits = _asked(name, "splits", dataset=dataset)["splits"]
    config = _chosen(name, "config", config, "default", [part["config"] for part in splits])
    config_splits = [part["split"] for part in splits if part["config"] == config]
    return {"dataset": dataset, "config": config, "split": _chosen(name, "split", split, "train", config_splits)}


def _chosen(name: str, kind: str, named: str | None, usual: str, choices: list[str]) -> str:
    choices = list(dict.fromkeys(choices))
    if named is None and (len(choices) == 1 or usual in choices):
        return choices[0] if len(choices) == 1 else usual
    if named not in choices:
        lacks = f"several {kind}s, and names none" if named is None else f"no {kind} `{named}`"
        raise UserMistake(f"{name} has {lacks}; {choose_from(named or '', choices)}")
    return named


def _rows(name: str, **part: str) -> Iterator[Any]:
    """Yield the rows, spread evenly over a long split. Raises `UserMistake`."""
    first = _asked(name, "rows", **part, offset=0, length=PAGE)
    total = first["num_rows_total"]
    pages = min(-(-total // PAGE), MAX_PAGES)
    shortened = 0
    for number in range(pages):
        offset = number * total // pages if total > PAGE * MAX_PAGES else number * PAGE
        page = first if number == 0 else _asked(name, "rows", **part, offset=offset, length=PAGE)
        for row in page["rows"]:
            shortened += bool(row["truncated_cells"])
            if not row["truncated_cells"]:
                yield row["row"]
    if shortened:
        logger.warning("%s: %d rows are left out, whose cells the viewer shortens.", name, shortened)


def _asked(name: str, page: str, **parameters: Any) -> dict[str, Any]:
    """Return the viewer's answer. Raises `UserMistake`."""
    import httpx  # slow to import, and needed only here
    from huggingface_hub import get_token

    token = get_token()
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    instead = "download it elsewhere and give its file to --dataset."
    for pause in (*PAUSES, None):
        try:
            answer = httpx.get(f"{VIEWER}/{page}", params=parameters, headers=headers, timeout=TIMEOUT)
        except httpx.HTTPError as error:
            raise UserMistake(f"{name} needs {VIEWER}, which cannot be reached ({error}): {instead}") from None
        if answer.status_code not in RETRIED or pause is None:
            break
        time.sleep(pause)
    try:
        document = answer.json()
    except ValueError:
        document = {}
    if answer.status_code in {401, 403, 404}:
        raise UserMistake(
            f"{name} does not exist, is private or is gated: correct the name, or accept its terms on its page and set "
            "HF_TOKEN to a token that may read it."
        )
    if not answer.is_success or not isinstance(document, dict):
        why = (isinstance(document, dict) and document.get("error")) or answer.reason_phrase
        raise UserMistake(f"{VIEWER} answers {answer.status_code} for {name} ({why}): {instead}")
    return document
