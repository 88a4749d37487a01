"""GPU: is it busy, with what, and did power or heat limit it? From our servers' NVML metrics, or DCGM's exporter's."""

from __future__ import annotations

from functools import partial

from grafana import variables
from grafana.boards.board import RUN_STARTS, STAGES, Board
from grafana.palette import BLUE, BY_GPU, BY_REASON, GREEN, ORANGE, RED
from grafana.panels import ABSENT, Panel, Steps, lines, sentence, tile
from grafana.promql import GPU, ON_INSTANCE, OUTPUT_TOKENS, STAGE, WINDOW, Query, rate

BUT_CAPPED = f'max_over_time({GPU}throttled{{{ON_INSTANCE},reason!="power_cap"}}{STAGE})'
HOT = 85  # °C; most GPUs lower their clock rates above
_lines = partial(lines, palette=BY_GPU, empty=ABSENT)


def board() -> Board:
    return Board(
        uid="enginebench-gpu",
        title="GPU",
        question="Is the GPU busy, and with what? Did power or heat limit it? What does a token cost in energy?",
        variables=[variables.DATA_SOURCE, variables.GPU_HOST, *variables.RUN, *variables.STAGE],
        annotations=[RUN_STARTS, STAGES],
        rows={
            "": [_which(), *_glance()],
            "Activity": _activity(),
            "Power and heat": _power(),
            "Links and errors": _links(),
        },
    )


def _which() -> Panel:
    kinds = f'count_values by (instance, name) ("gpus", count by (instance, name) ({_in_stage("info", "last")}))'
    return sentence(
        "What is seen",
        "The GPUs of each server, or of each DCGM exporter. A dash below is what none of them reports.",
        [Query(kinds, "{{instance}}: {{gpus}} × {{name}}")],
        otherwise="No GPU is reported: start a server of ours on a machine with one, or DCGM's exporter for others.",
    )


def _glance() -> list[Panel]:
    """Return the tiles of the run's last stage, or of the time range."""
    return [
        _tile(
            "Utilisation",
            "Mean share of time in which a kernel was running. At 100 % the GPU may still have capacity left.",
            "percentunit",
            f"avg by (instance) ({_in_stage('utilization_ratio', 'avg')})",
        ),
        _tile(
            "Highest temperature",
            f"The hottest GPU's temperature. From {HOT} °C most GPUs lower their clock rates.",
            "celsius",
            f"max by (instance) ({_in_stage('temperature_celsius', 'max')})",
            [(None, GREEN), (HOT - 5, ORANGE), (HOT, RED)],
        ),
        _tile(
            "Throttled",
            "Number of GPUs whose clock rates were reduced, except by their power cap, which busy GPUs reach.",
            "short",
            f"count by (instance) (max by (instance, gpu) ({BUT_CAPPED}) > 0) "
            f"or 0 * count by (instance) ({BUT_CAPPED})",
            [(None, GREEN), (1, RED)],
        ),
        _tile(
            "Energy per token",
            "Energy of all GPUs of a host, divided by the tokens that its engines generated. Idle power counts.",
            "suffix: J/token",
            _energy_per_token(STAGE),
        ),
    ]


def _activity() -> list[Panel]:
    return [
        _lines(
            "GPU utilisation",
            "Share of time in which a kernel was running. It says that the GPU was in use, not how much of it.",
            "percentunit",
            [_each("utilization_ratio")],
            top=1,
        ),
        _lines(
            "Memory bandwidth and multiprocessors",
            "Share of the memory bandwidth in use, and (dashed) of the multiprocessors. Decoding fills the memory "
            "bandwidth first. Hopper and later, or DCGM.",
            "percentunit",
            [_each("dram_activity_ratio", "DRAM"), _each("sm_activity_ratio", "SM")],
            top=1,
            dashed=["SM"],
        ),
        _lines(
            "Tensor cores",
            "Share of time in which tensor cores were in use. Prefilling fills them first. Hopper and later, or DCGM.",
            "percentunit",
            [_each("tensor_activity_ratio")],
            top=1,
        ),
        _lines(
            "GPU memory",
            "Memory in use by all processes, and the total (dashed). Engines that reserve their cache at start show a "
            "flat line.",
            "bytes",
            [_each("memory_used_bytes", "used"), _each("memory_total_bytes", "size")],
            dashed=["size"],
        ),
        _lines(
            "Memory by process",
            "Memory of each process on the GPU. A process that is not the engine takes part of the capacity measured.",
            "bytes",
            [Query(_of("process_memory_bytes"), "{{instance}} GPU {{gpu}} {{process}} {{pid}}")],
            stacked=True,
        ),
    ]


def _power() -> list[Panel]:
    return [
        _lines(
            "Power",
            "Power draw of each GPU, and its limit (dashed). At the limit clock rates drop.",
            "watt",
            [_each("power_watts", "drawn"), _each("power_limit_watts", "limit")],
            dashed=["limit"],
        ),
        _lines(
            "Temperature",
            f"Above about {HOT} °C (orange) most GPUs reduce their clock rates, and a long run measures the cooling.",
            "celsius",
            [_each("temperature_celsius")],
            steps=[(None, GREEN), (HOT, ORANGE)],
        ),
        _lines(
            "Clock rates",
            "Clock rates of multiprocessors and memory (dashed). Runs at different clock rates are not comparable.",
            "hertz",
            [_each("sm_clock_hertz", "SM"), _each("memory_clock_hertz", "memory")],
            dashed=["memory"],
        ),
        _lines(
            "Throttling by reason",
            "Reasons for which clock rates are reduced, one on top of the other. `power_cap` is usual on busy GPUs; "
            "with any other, a run measures the cooling or the power supply.",
            "short",
            [Query(f"{_of('throttled')} > 0", f"{EACH} {{{{reason}}}}")],
            stacked=True,
            palette=BY_REASON,
        ),
        _lines(
            "Energy per output token",
            "Energy of all GPUs of a host, divided by the tokens that its engines generated. Idle power counts, so it "
            "falls as batches grow.",
            "suffix: J/token",
            [Query(_energy_per_token(WINDOW), "{{host}}")],
        ),
    ]


def _links() -> list[Panel]:
    return [
        _lines(
            "PCIe",
            "Traffic from the GPU and (dashed) to it. Weights, offloaded caches and logits pass here.",
            "Bps",
            [_each("pcie_sent_bytes_per_second", "out"), _each("pcie_received_bytes_per_second", "in")],
            dashed=["in"],
        ),
        _lines(
            "NVLink",
            "Traffic between GPUs: sent and (dashed) received. Tensor parallelism exchanges activations here at every "
            "layer.",
            "Bps",
            [Query(_link("sent"), f"{EACH} out"), Query(_link("received"), f"{EACH} in")],
            dashed=["in"],
        ),
        _lines(
            "ECC and Xid errors",
            "Memory errors that ECC could not correct since the driver was loaded, and errors that the driver reported "
            "by their Xid number (dashed). Any of them makes a run doubtful.",
            "short",
            [
                Query(f'{GPU}ecc_errors_total{{{ON_INSTANCE},kind="uncorrected"}}', f"{EACH} ECC"),
                Query(_of("xid_errors_total"), f"{EACH} Xid {{{{xid}}}}"),
            ],
            steps=[(None, GREEN), (1, ORANGE)],
            dashed=[r"Xid \d+"],
        ),
    ]


EACH = "{{instance}} GPU {{gpu}}"


def _of(name: str) -> str:
    return f"{GPU}{name}{{{ON_INSTANCE}}}"


def _in_stage(name: str, statistic: str) -> str:
    return f"{statistic}_over_time({_of(name)}{STAGE})"


def _each(name: str, what: str = "") -> Query:
    """Return a number per GPU; `what` distinguishes several in one panel."""
    return Query(_of(name), f"{EACH} {what}".rstrip())


def _link(direction: str) -> str:
    """Return bytes per second over NVLink: our servers export counters, DCGM's exporter rates."""
    counted, rate_of_dcgm = _of(f"nvlink_{direction}_bytes_total"), _of(f"nvlink_{direction}_bytes_per_second")
    return f"rate({counted}{WINDOW}) or {rate_of_dcgm}"


def _energy_per_token(window: str) -> str:
    """Join by host, because DCGM's exporter has another port than the engines."""
    # Two servers on a host may report the same GPU.
    energy = rate(f"{GPU}energy_joules_total", "instance, gpu", "", ON_INSTANCE, window)
    energy = f"sum by (host) (max by (host, gpu) ({_with_host(energy)}))"
    tokens = _with_host(rate(OUTPUT_TOKENS, "instance", "", 'instance!=""', window))
    return f"{energy} / (sum by (host) ({tokens}) > 0)"


def _with_host(expr: str) -> str:
    return f'label_replace({expr}, "host", "$1", "instance", "(.+?)(:\\\\d+)?")'


def _tile(title: str, description: str, unit: str, expr: str, steps: Steps = ((None, BLUE),)) -> Panel:
    legend = "{{host}}" if "by (host)" in expr else "{{instance}}"
    return tile(title, description, unit, Query(expr, legend), steps, empty=ABSENT)
