"""`llama-server` from the wheel of xllamacpp, which has llama.cpp's server as a library: the same flags and paths.

It is run by the interpreter of the environment `llamacpp`, where nothing else of ours is on the path.
"""

from __future__ import annotations

import argparse
import threading

import xllamacpp

SPLIT_MODES = ("none", "layer", "row")  # by their numbers in llama.cpp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", action="version", version=f"version: {xllamacpp.__version__}")
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--alias")
    for flag in ("port", "parallel", "ctx-size", "threads", "threads-batch", "n-gpu-layers", "cache-ram"):
        parser.add_argument(f"--{flag}", type=int, required=True)
    for switch in ("no-webui", "no-cache-prompt", "metrics"):
        parser.add_argument(f"--{switch}", action="store_true")
    parser.add_argument("--split-mode", choices=SPLIT_MODES, default="layer")
    parser.add_argument("--log-verbosity", type=int, default=0)
    server = xllamacpp.Server(parameters(parser.parse_args()))  # answers from here on, in its own threads
    threading.Event().wait()
    del server


def parameters(flags: argparse.Namespace) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = flags.model
    params.hostnames, params.port, params.ui = [flags.host], flags.port, not flags.no_webui
    params.n_parallel, params.n_ctx = flags.parallel, flags.ctx_size
    params.cpuparams.n_threads, params.cpuparams_batch.n_threads = flags.threads, flags.threads_batch
    params.n_gpu_layers, params.split_mode = flags.n_gpu_layers, SPLIT_MODES.index(flags.split_mode)
    params.cache_ram_mib, params.cache_prompt = flags.cache_ram, not flags.no_cache_prompt
    params.endpoint_metrics = flags.metrics
    params.model_alias = {flags.alias} if flags.alias else set()
    params.verbosity = flags.log_verbosity
    return params


if __name__ == "__main__":
    main()
