"""Pictures of pages, taken by a headless Chromium."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb"]


def height_of(page: Path, width: int) -> int:
    """Pixels that the page takes at this width."""
    measured = page.with_name("measured.html")
    measured.write_text(
        f"{page.read_text()}<script>onload = () => document.title = document.documentElement.scrollHeight</script>"
    )
    command = [CHROMIUM, *FLAGS, f"--window-size={width},200", "--dump-dom", measured.as_uri()]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    title = re.search(r"<title>(\d+)</title>", said)
    assert title is not None, said[:500]
    return int(title[1])


def take(page: Path | str, path: Path, width: int, height: int, wait: float = 0.0) -> None:
    """A PNG of the page, `wait` seconds of its own time after it was opened."""
    address = page if isinstance(page, str) else page.as_uri()
    command = [CHROMIUM, *FLAGS, f"--window-size={width},{height}", f"--screenshot={path}"]
    command += [f"--virtual-time-budget={wait * 1000:.0f}"] if wait else []
    subprocess.run([*command, address], capture_output=True, check=True, timeout=120)
