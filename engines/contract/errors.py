"""Errors of an engine. Each message is one sentence for the user, with the remedy.

Standard library only, like the rest of the contract.
"""

from __future__ import annotations

import re
from typing import Literal

from enginebench.settings.schema import UserMistake

ErrorKind = Literal["bad_request", "overloaded", "unavailable", "crashed", "fatal", "internal"]


class EngineError(Exception):
    """An error reported instead of an answer; `kind` decides the HTTP status."""

    kind: ErrorKind = "internal"


class BadRequest(EngineError):
    """The request asks for something this engine cannot do, or makes no sense."""

    kind = "bad_request"


class EngineOverloaded(EngineError):
    """The engine, or a server behind it, refuses more requests. `retry_after` in seconds, if it is known."""

    kind = "overloaded"

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class EngineUnavailable(EngineError, UserMistake):
    """The engine cannot run here, or is not loaded: a missing package, model or device."""

    kind = "unavailable"


class EngineCrashed(EngineError):
    """The engine's process ended while the request was running."""

    kind = "crashed"


class RemoteFailed(EngineError):
    """An error that another server reports; this process goes on."""


class FatalError(EngineError):
    """The engine cannot continue (a sticky CUDA error, a dead scheduler): its process is replaced."""

    kind = "fatal"


# Errors of a GPU that persist in its process: every later call fails too. Running out of memory does not persist.
STICKY = re.compile(
    r"CUDA error|CUDA_ERROR_(?!OUT_OF_MEMORY)|cudaError(?!MemoryAllocation)|CUBLAS_STATUS_(EXECUTION_FAILED|INTERNAL)"
    r"|CUDNN_STATUS_(EXECUTION_FAILED|INTERNAL)|device-side assert|HIP error|hipError(?!OutOfMemory)"
)
OUT_OF_MEMORY = "out of memory"  # in messages of torch, CUDA and HIP


def is_sticky(error: BaseException) -> bool:
    """Return whether the GPU's context is lost, from the text of the error or its cause, for any library."""
    if isinstance(error, BadRequest | EngineOverloaded | EngineUnavailable | RemoteFailed):  # may quote others
        return False
    causes: BaseException | None = error
    while causes is not None:
        if STICKY.search(str(causes)) and OUT_OF_MEMORY not in str(causes):
            return True
        causes = causes.__cause__ or causes.__context__
    return False


FOLDERS = re.compile(r"(?<![\w:/.])/(?:[^\s/'\"]+/)+(?=[^\s/'\"])")


def without_folders(text: str) -> str:
    """Leave only the names of files in a text: clients must not see the paths of this host."""
    return FOLDERS.sub("", text)


def first_line(error: BaseException) -> str:
    """Return the first line of another library's exception."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
