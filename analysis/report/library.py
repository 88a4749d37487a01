"""What a page needs and takes long to make: the Vega libraries, which vl-convert carries, in a JavaScript engine and as
a script for pages with charts.

The engine starts beside other work; the script is kept for the next report, or made anew where it cannot be kept.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib.metadata import version
from threading import Thread

import vl_convert
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
