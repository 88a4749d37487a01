"""The Vega libraries as one script, for pages that draw their charts themselves.

vl-convert carries them and takes seconds to put them together, so they are kept for the next report.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import version

import vl_convert
from markupsafe import Markup
from platformdirs import user_cache_path

from records.files import write_atomically


def vega_script() -> Markup:
    """Vega, Vega-Lite and Vega-Embed. The cache is only for speed: without one, the script is made anew."""
    kept = user_cache_path("enginebench") / f"vega-{version('vl-convert-python')}.js"
    with suppress(OSError):
        return Markup(kept.read_text(encoding="utf-8"))
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, script)
    return Markup(script)
