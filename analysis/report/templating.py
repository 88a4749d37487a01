"""Where the templates of the pages are, and what they may use."""

from __future__ import annotations

import re

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape


def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("analysis.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"unbroken": _unbroken, "code": _code}
    return made


def _code(text: str) -> Markup:
    """`what is typed` is set as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _unbroken(text: str) -> Markup:
    """A ratio and its interval stay on one line: 3.1× [2.9, 3.3]."""
    return Markup(re.sub(r"\S+ \[[^\]]*\]", r'<span class="unbroken">\g<0></span>', str(escape(text))))
