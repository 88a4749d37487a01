"""The suite's own cache: a temporary folder with its models and the files made from them, removed after the suite.

Files that take long to make stay in the user's cache for the next suite: the embedded model, programs, environments
of engines, Inductor's output, and the record that the Rust tests have passed. All processes of the suite share the
folder, including those of pytest-xdist and of engines, because ENGINEBENCH_CACHE names it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from engines.models.cache import built_once, cache_folder
from engines.models.fetch import DEFAULT

KEPT = ("environments", "inductor", "programs", "suite")
EMBEDDED = (f"gguf/{DEFAULT}", f"models/{DEFAULT}")
SMALL = "*/small-*"  # for a machine without network: `python -m tests.support.engines.small_model`


@contextmanager
def suite_cache() -> Iterator[None]:
    users, before = cache_folder(), dict(os.environ)
    # Under another name of the same folder, Cargo would compile everything again.
    os.environ.setdefault("CARGO_TARGET_DIR", str(users / "cargo-target"))
    with tempfile.TemporaryDirectory(prefix="enginebench-suite-", ignore_cleanup_errors=True) as temporary:
        own = Path(temporary)
        for name in KEPT:
            (users / name).mkdir(parents=True, exist_ok=True)
            (own / name).symlink_to(users / name)
        made = [str(folder.relative_to(users)) for folder in users.glob(SMALL)]
        for name in (*EMBEDDED, *made):
            (own / name).parent.mkdir(exist_ok=True)
            if (users / name).is_dir():
                (own / name).symlink_to(users / name)
        os.environ["ENGINEBENCH_CACHE"] = temporary
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
            for name in EMBEDDED:
                if (own / name).is_dir():  # a link, or fetched and converted by a test
                    built_once(users / name, partial(shutil.copytree, own / name, dirs_exist_ok=True))
