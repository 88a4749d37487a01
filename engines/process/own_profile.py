"""Profilers that run inside the engine's process, as the message `profile` of the protocol asks: torch and memray.

Both write for a reader without them: torch a trace, for chrome://tracing and Perfetto too, and the number of tokens;
memray its high-water mark as collapsed stacks ("outer;inner bytes"). Standard library only until one starts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

Tokens = Callable[[], int]
End = Callable[[], None]


def start(profiler: str, path: Path, tokens: Tokens) -> End:
    """Calling what it returns ends the profile and writes its files. `tokens` counts those generated so far."""
    starts = {"torch": _torch, "memray": _memray}
    if profiler not in starts:
        raise ValueError(f"there is no profiler called {profiler}.")
    return starts[profiler](path, tokens)


def _torch(path: Path, tokens: Tokens) -> End:
    import torch
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    # Engines compute on threads of their own, this runs on the event loop's.
    running = profile(activities=activities, experimental_config=_ExperimentalConfig(profile_all_threads=True))
    before = tokens()
    running.start()

    def end() -> None:
        generated = tokens() - before
        running.stop()
        running.export_chrome_trace(f"{path}.trace.json.gz")  # torch's own sums of it take minutes for some seconds
        Path(f"{path}.json").write_text(json.dumps({"tokens": generated}))

    return end


def _memray(path: Path, tokens: Tokens) -> End:
    from memray import FileReader, Tracker

    file = Path(f"{path}.memray")
    file.unlink(missing_ok=True)
    tracker = Tracker(file, native_traces=False)
    tracker.__enter__()

    def end() -> None:
        tracker.__exit__(None, None, None)
        stacks: Counter[str] = Counter()
        with FileReader(file) as reader:
            for record in reader.get_high_watermark_allocation_records(merge_threads=True):
                frames = [f"{name} ({Path(source).name}:{line})" for name, source, line in record.stack_trace()]
                stacks[";".join(reversed(frames)) or "native code"] += record.size
        Path(f"{path}.txt").write_text("".join(f"{stack} {size}\n" for stack, size in stacks.items()))

    return end
