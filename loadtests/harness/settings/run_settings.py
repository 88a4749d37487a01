"""Settings of a run: its folder, its names, and how its server is reached."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from enginebench.records.plain_text import is_file_name
from enginebench.settings.schema import Address, UserMistake, from_environment, read_address, write_address
from loadtests.harness.client.authentication import Access, access_to
from loadtests.harness.client.dialects.endpoints import DIALECTS, Endpoint
from loadtests.harness.client.headers import Headers, parse_headers, write_headers
from loadtests.harness.client.tls import TlsOptions
from loadtests.harness.setting_groups import api_setting, prompt_setting, run_setting

EXPORTER_PORTS = 4  # the default one and the next ones, as in docker/prometheus/targets/load.yml


def read_run_id(text: str) -> str:
    """Check the name of a run's folder. Raises `UserMistake`."""
    if not is_file_name(text):
        raise UserMistake(f"--run-id is the name of a folder in --runs, not `{text}`: leave out what makes it a path.")
    return text


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The place and name of a run, and how its server is reached."""

    model: str | None = api_setting(
        None, "Model to request. Default: the first one that the server lists.", metavar="NAME"
    )
    runs: Path = run_setting(
        Path("runs"), "Folder of the runs; each run gets a folder in it.", metavar="FOLDER", on_page=False
    )
    label: str | None = run_setting(
        None, "Name of this run in reports. Default: the server's engine, else its address.", metavar="NAME"
    )
    run_id: str | None = run_setting(
        None,
        "Name of the run's folder, for a single run. Default: time, label and four random letters.",
        metavar="NAME",
        read=read_run_id,
        on_page=False,
    )
    tokenizer: Path | None = prompt_setting(
        None,
        "The model's tokenizer.json, or a folder with one, for prompts of exact lengths if the server has no "
        "/tokenize.",
        metavar="PATH",
        on_page=False,
    )
    exporter: Address | None = run_setting(
        ("127.0.0.1", 9646),
        "Address on which the load test serves its own metrics to Prometheus; none: no exporter. If the default is "
        "taken, one of the next three ports.",
        metavar="HOST:PORT",
        read=read_address,
        write=write_address,
        on_page=False,
    )
    opentelemetry: bool = run_setting(
        False,
        "Send each request as a span, and metrics, to the OpenTelemetry collector that OTEL_EXPORTER_OTLP_ENDPOINT "
        "names, after the request and in another process; requests have a traceparent header. Needs "
        "enginebench[otel].",
        flag="--otel",
        on_page=False,
    )
    insecure: bool = api_setting(False, "Do not check the server's TLS certificate.", on_page=False)
    header: Headers = api_setting(
        (),
        "Header of every request; may be repeated. Never written to disk. `enginebench run` takes NAME.HEADER for one "
        "of several servers.",
        metavar="'NAME: VALUE'",
        read=parse_headers,
        write=write_headers,
        secret=True,
        on_page=False,
        repeatable=True,
    )

    def access(
        self, url: str, endpoint: Endpoint, environment: Mapping[str, str] = os.environ, with_keys: bool = True
    ) -> Access:
        """Raise `UserMistake` if credentials are missing."""
        tls = TlsOptions(self.insecure)
        if not with_keys:
            return Access(DIALECTS[endpoint].headers(None), tls=tls)
        return access_to(url, endpoint, self.header, environment, tls)


def runs_here() -> Path:
    """Return the folder of the runs, as the environment or the default says."""
    return Path(from_environment(RunSettings).get("runs") or RunSettings().runs)
