"""What a page needs and takes long to make: the Vega libraries, which vl-convert carries, in a JavaScript engine and as
a script for pages with charts; and the compiled templates.

The engine starts beside other work; the script and the templates are kept for the next report. The cache is only for
speed: where it cannot be written, they are made anew.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib.metadata import version
from threading import Thread

import vl_convert
from jinja2 import FileSystemBytecodeCache
from jinja2.bccache import Bucket
from markupsafe import Markup
from platformdirs import user_cache_path

from records.files import write_atomically

CACHE = user_cache_path("enginebench")


@cache
def start_engine() -> None:
    """Have vl-convert load its libraries beside other work, once: it does not hold the interpreter's lock meanwhile."""
    nothing = {"data": {"values": []}, "mark": "point"}
    Thread(target=vl_convert.vegalite_to_svg, args=(nothing,), name="vl-convert").start()


def vega_script() -> Markup:
    """Vega, Vega-Lite and Vega-Embed."""
    kept = CACHE / f"vega-{version('vl-convert-python')}.js"
    with suppress(OSError):
        return Markup(kept.read_text(encoding="utf-8"))
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, script)
    return Markup(script)


class CompiledTemplates(FileSystemBytecodeCache):
    """Of Jinja, which compares their sources: an edited template is compiled again, in the place of the old one. All
    installations share them: by their paths, each new environment would leave its own behind."""

    def __init__(self) -> None:
        super().__init__(str(CACHE))

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        return super().get_cache_key(name)

    def dump_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            CACHE.mkdir(parents=True, exist_ok=True)
            super().dump_bytecode(bucket)
