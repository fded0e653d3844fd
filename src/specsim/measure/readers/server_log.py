"""Logs of vLLM servers: configuration, cache, weights, and what speculation accepted.

One row per start of a server. Lines are read one by one: logs reach hundreds of MB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from specsim.measure.source import Foreign, Source
from specsim.schema.measurement import ArmSource, MeasuredAcceptance, MeasuredArm, Measurement

FORMAT = "server_log"

_HEAD = re.compile(
    r"\((?:APIServer|EngineCore|Worker|VllmWorker)[\w-]* pid=\d+\)"
    r"|(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[[\w/]+\.py:\d+\]"
    r"|SpecDecoding metrics: |Initializing an? (?:V\d )?LLM engine|vLLM API server version"
)
_COLOUR = re.compile(r"\x1b?\[\d+(?:;\d+)*m")
_PROCESS = re.compile(r"^\(([\w-]+) pid=(\d+)\)")

_CONFIG = re.compile(r"Initializing an? (?:V\d )?LLM engine \(v([^)\s]+)\) with config: (.*)")
_ARGS = "non-default args: "
_BANNER = re.compile(r"(?:[\u2580-\u259f]\s+|vLLM API server )version (\d\S*)")
_SPECULATION = re.compile(r"speculative_config=(None\b|SpeculativeConfig\([^)]*\))")
_SPECULATION_ARGS = re.compile(r"'speculative_config': (\{[^}]*\})")
_METHOD = re.compile(r"'?method'?[=:] ?'?([\w-]+)")
_DRAFTER = re.compile(r"\b(?:draft_)?model'?[=:] ?'?([^',)}]+)")
_K = re.compile(r"'?(?:num_spec_tokens|num_speculative_tokens)'?[=:] ?(\d+)")
_MODEL = re.compile(r"(?:^|\s)model='?([^',\s]+)")
_TP = re.compile(r"\btensor_parallel_size'?[=:] ?(\d+)")

# Facts that are kept as text: what they are called -> how they are written.
_TEXT = {
    "cudagraph_mode": re.compile(r"'cudagraph_mode': <CUDAGraphMode\.(\w+)"),
    "max_cudagraph_capture_size": re.compile(r"'max_cudagraph_capture_size': (\d+)"),
    "dtype": re.compile(r"\bdtype=(?:torch\.)?(\w+)"),
    "quantization": re.compile(r"\bquantization=(?!None)(\w[\w-]*)"),
    "kv_cache_dtype": re.compile(r"\bkv_cache_dtype=(\w+)"),
    "max_model_len": re.compile(r"\bmax_seq_len=(\d+)"),
    "data_parallel_size": re.compile(r"\bdata_parallel_size=(\d+)"),
    "device": re.compile(r"\bdevice_config=(\w+)"),
    "enforce_eager": re.compile(r"\benforce_eager=(True|False)"),
    "prefix_caching": re.compile(r"\benable_prefix_caching=(True|False)"),
}
_TEXT_ARGS = {
    "max_num_seqs": re.compile(r"'max_num_seqs': (\d+)"),
    "gpu_memory_utilization": re.compile(r"'gpu_memory_utilization': ([\d.]+)"),
    "max_num_batched_tokens": re.compile(r"'max_num_batched_tokens': (\d+)"),
    "served_model_name": re.compile(r"'served_model_name': \['([^']+)'"),
}
_TEXT_LINES = {
    "max_num_batched_tokens": re.compile(r"max_num_batched_tokens=(\d+)\."),
    "max_num_scheduled_tokens": re.compile(r"max_num_scheduled_tokens is set to (\d+)"),
    "max_concurrency_by_cache": re.compile(r"tokens per request: ([\d.]+)x"),
    "async_scheduling": re.compile(r"Asynchronous scheduling is (enabled|disabled)"),
    "model_runner": re.compile(r"Using (V2) Model Runner|using the (V1) model runner instead"),
    "cudagraph_memory_gib": re.compile(r"Graph capturing finished in .* took ([\d.]+) GiB"),
    "cudagraph_mode": re.compile(r"Overriding cudagraph_mode from \w+ to (\w+)"),
    "adaptive_verification": re.compile(
        r"(enable_adaptive_verification'?[=:] ?True|[Aa]daptive verification (?!.*disabled))"
    ),
}
_CACHE = re.compile(r"KV cache size: ([\d,]+) tokens")
_WEIGHTS = re.compile(r"Model loading took ([\d.]+) (?:GiB|GB)\b")
_AVAILABLE = re.compile(r"Available KV cache memory: (-?[\d.]+) GiB")
_RUNNING = re.compile(r"Running: (\d+) reqs, Waiting: (\d+) reqs")

_WINDOW = "SpecDecoding metrics: "
_LENGTH = re.compile(r"Mean acceptance length: ([\d.]+)")
_ACCEPTED = re.compile(r"Accepted: (\d+) tokens")
_DRAFTED = re.compile(r"Drafted: (\d+) tokens")
_POSITIONS = re.compile(r"Per-position acceptance rate: ([\d.]+(?:, [\d.]+)*)")

_WANTED = re.compile(
    r"SpecDecoding metrics|LLM engine|non-default args|version \d|KV cache size: |per request: "
    r"|Model loading took|Available KV|Running: \d|batched_tokens=|scheduled_tokens is"
    r"|synchronous scheduling|odel [Rr]unner|Graph capturing|Overriding cudagraph|daptive.verif"
)
"""Most lines of a log say nothing: one search decides."""


@dataclass
class _Start:
    """What the log says from one start of a server to the next."""

    version: str | None = None
    model: str | None = None
    arm: MeasuredArm = "unknown"
    method: str | None = None
    drafter: str | None = None
    k: int | None = None
    tensor_parallel: int | None = None
    caches: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    available: list[float] = field(default_factory=list)
    text: dict[str, str] = field(default_factory=dict)
    engines: dict[str, str] = field(default_factory=dict)
    """Engine process -> its id: one that comes again with another id is a new start."""
    most_running: int = -1
    most_waiting: int = 0
    windows: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    weighted: list[float] = field(default_factory=list)
    """Per position: rate times drafts, summed over windows."""
    depths: set[int] = field(default_factory=set)

    @property
    def says_something(self) -> bool:
        return bool(self.version or self.engines or self.windows or self.caches or self.weights)


def recognises(source: Source) -> bool:
    """Whether the head has lines of a vLLM log."""
    # A log may begin with '['; what begins with '{' only quotes one.
    return not source.head.lstrip().startswith("{") and _HEAD.search(source.head) is not None


def read(source: Source) -> list[Measurement]:
    """Return a row per start of a server.

    Raises
    ------
    Foreign
        Nothing but requests and stack traces.
    """
    starts = [s for s in _starts(source.lines()) if s.says_something]
    if not starts:
        raise Foreign("lines of vLLM, but neither a server's configuration nor what it accepted")
    n = len(starts)
    names = [source.name] if n == 1 else [f"{source.name} (start {i + 1} of {n})" for i in range(n)]
    return [_row(start, name) for start, name in zip(starts, names, strict=True)]


def _starts(lines: Iterator[str]) -> Iterator[_Start]:
    now = _Start()
    for raw in lines:
        if not _WANTED.search(raw):
            continue
        line = _COLOUR.sub("", raw)
        if _begins(line, now):
            yield now
            now = _Start()
        _take(line, now)
    yield now


def _begins(line: str, now: _Start) -> bool:
    """Whether a line is of a later start: the front end's first lines, or an engine once more."""
    if _ARGS in line or _BANNER.search(line):
        return bool(now.engines or now.windows)
    if _CONFIG.search(line):
        name, pid = _process(line)
        return name in now.engines and (not name or now.engines[name] != pid)
    return False


def _process(line: str) -> tuple[str, str]:
    found = _PROCESS.match(line)
    return (found[1], found[2]) if found else ("", "")


def _take(line: str, now: _Start) -> None:
    if _WINDOW in line:
        _take_window(line.partition(_WINDOW)[2], now)
    elif config := _CONFIG.search(line):
        name, pid = _process(line)
        now.engines[name] = pid
        now.version = config[1]
        _take_config(config[2], now)
    elif _ARGS in line:
        _take_args(line.partition(_ARGS)[2], now)
    elif running := _RUNNING.search(line):
        now.most_running = max(now.most_running, int(running[1]))
        now.most_waiting = max(now.most_waiting, int(running[2]))
    else:
        if banner := _BANNER.search(line):
            now.version = now.version or banner[1]
        for pattern, values in (
            (_CACHE, now.caches),
            (_WEIGHTS, now.weights),
            (_AVAILABLE, now.available),
        ):
            if found := pattern.search(line):
                values.append(float(found[1].replace(",", "")))
        for name, pattern in _TEXT_LINES.items():
            if found := pattern.search(line):
                now.text[name] = next(g for g in found.groups() if g)


def _take_config(config: str, now: _Start) -> None:
    speculation = _SPECULATION.search(config)
    if speculation:
        now.arm = "off" if speculation[1] == "None" else "on"
        if now.arm == "on":
            _take_speculation(speculation[1], now)
    if model := _MODEL.search(config):
        now.model = model[1]
    if tp := _TP.search(config):
        now.tensor_parallel = int(tp[1])
    for name, pattern in _TEXT.items():
        if found := pattern.search(config):
            now.text[name] = found[1]


def _take_args(args: str, now: _Start) -> None:
    # Silence about speculation proves nothing here: the engine's own configuration line does.
    if speculation := _SPECULATION_ARGS.search(args):
        now.arm = "on"
        _take_speculation(speculation[1], now)
    if tp := _TP.search(args):
        now.tensor_parallel = int(tp[1])
    if "'enable_adaptive_verification': True" in args:
        now.text["adaptive_verification"] = "yes"
    for name, pattern in _TEXT_ARGS.items():
        if found := pattern.search(args):
            now.text[name] = found[1]


def _take_speculation(config: str, now: _Start) -> None:
    if method := _METHOD.search(config):
        now.method = method[1]
    if (drafter := _DRAFTER.search(config)) and drafter[1] != "None":
        now.drafter = drafter[1]
    if k := _K.search(config):
        now.k = int(k[1])


def _take_window(window: str, now: _Start) -> None:
    """Add a window of some ten seconds; windows differ in drafts and are weighted by them."""
    accepted, drafted = _ACCEPTED.search(window), _DRAFTED.search(window)
    if not accepted or not drafted or int(drafted[1]) <= 0:
        return
    rates = [float(r) for r in found[1].split(", ")] if (found := _POSITIONS.search(window)) else []
    depth = len(rates) or now.k
    length = float(mean[1]) if (mean := _LENGTH.search(window)) else None
    # vLLM 0.8.5 put the rate first and left the bonus token out of the length.
    if length is not None and window.startswith("Draft acceptance rate"):
        length += 1
    drafts = _drafts(int(accepted[1]), int(drafted[1]), depth, length)
    if not drafts:
        return
    now.windows += 1
    now.drafts += drafts
    now.drafted += int(drafted[1])
    now.accepted += int(accepted[1])
    now.depths |= {len(rates)} if rates else set()
    now.weighted += [0.0] * (len(rates) - len(now.weighted))
    for position, rate in enumerate(rates):
        now.weighted[position] += rate * drafts


def _drafts(accepted: int, drafted: int, depth: int | None, length: float | None) -> int:
    """Return the drafts of a window, which is not printed: drafted / k where all are full."""
    full = round(drafted / depth) if depth else 0
    if length is None or length <= 1 or not accepted:
        return full
    if full and abs(1 + accepted / full - length) <= 0.011:
        return full
    return round(accepted / (length - 1))  # drafts shorter than k: n-gram, adaptive


def _row(start: _Start, name: str) -> Measurement:
    warnings = []
    acceptance = None
    arm, k = start.arm, start.k
    arm_from: ArmSource = "log" if arm != "unknown" else ""
    if start.windows:
        if arm == "off":
            warnings.append(
                "the configuration says that speculation is off, yet tokens were drafted"
            )
        arm, arm_from = "on", "log"
        same_depth = len(start.depths) == 1
        if k is None and same_depth:
            k = next(iter(start.depths))
        if len(start.depths) > 1:
            warnings.append("windows differ in draft length: no rates per position")
        acceptance = MeasuredAcceptance(
            acceptance_length=1 + start.accepted / start.drafts,
            draft_acceptance_rate=start.accepted / start.drafted,
            per_position=tuple(w / start.drafts for w in start.weighted) if same_depth else None,
            drafts=start.drafts,
            draft_tokens=start.drafted,
            accepted_tokens=start.accepted,
        )
        warnings.append("acceptance over all that the server did, warm-up included")
    return Measurement(
        source=name,
        format=FORMAT,
        arm=arm,
        arm_from=arm_from,
        method=start.method,
        num_speculative_tokens=k,
        model=start.model,
        drafter=start.drafter,
        tensor_parallel_size=start.tensor_parallel,
        engine="vllm",
        engine_version=start.version,
        acceptance=acceptance,
        # Of several engines or ranks the smallest cache and the largest share of the weights bind.
        kv_tokens=round(min(start.caches)) if start.caches else None,
        weights_gib=max(start.weights, default=None),
        metadata=_metadata(start),
        warnings=tuple(warnings),
    )


def _metadata(start: _Start) -> dict[str, str]:
    found = dict(start.text)
    if "adaptive_verification" in found:
        found["adaptive_verification"] = "yes"
    if start.available:
        found["available_kv_gib"] = f"{min(start.available):g}"
    if len(start.engines) > 1:
        found["engines"] = str(len(start.engines))
    if start.windows:
        found["acceptance_windows"] = str(start.windows)
    if start.most_running >= 0:
        found["most_running"] = str(start.most_running)
        found["most_waiting"] = str(start.most_waiting)
    return found
