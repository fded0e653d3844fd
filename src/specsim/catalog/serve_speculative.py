"""vLLM's `--speculative-config` -> a scenario's `speculation`, by version."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specsim.catalog.engines import engine_versions, load_engine, parse_version, version_before
from specsim.catalog.serve_flags import FlagTable, look_up
from specsim.errors import UsageError, nearest

_PARALLEL = {"eagle": "p_eagle", "eagle3": "p_eagle", "draft_model": "pard"}
"""What `parallel_drafting: true` makes of a method."""
_NAME_HINTS = (
    ("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"),
    ("medusa", "medusa"),
)  # fmt: skip
"""vLLM looks for these in the drafter's name, in this order, where no method is given."""
NEEDS_DRAFTER = frozenset({"draft_model", "eagle", "eagle3", "medusa", "dflash", "p_eagle", "pard"})
_OWN_LENGTH = frozenset({"mtp", "dspark", "suffix"})
"""Methods that know a number of draft tokens by themselves."""


@dataclass
class Reading:
    """What has been understood so far."""

    speculation: dict[str, Any] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_speculative_config(
    config: Mapping[str, Any],
    *,
    version: str | None,
    tensor_parallel_size: int,
    model: str,
    table: FlagTable,
) -> Reading:
    """Translate the fields of `--speculative-config`; every field is understood or refused.

    Parameters
    ----------
    config : mapping
        The JSON object.
    version : str or None
        vLLM's version; None: the newest known.
    """
    found = Reading()
    fields = {str(key).replace("-", "_"): value for key, value in config.items()}
    _check_fields(fields, version=version, table=table, found=found)
    method = _method(fields, table=table, found=found)
    _check_version_has(method, version)
    speculation = found.speculation
    speculation["method"] = method
    _draft_tokens(fields, method, found)
    _drafter(fields, method, model, found)
    _tensor_parallel(fields, tensor_parallel_size, found)
    _acceptance(fields, found)
    if fields.get("quantization") is not None:
        dtype = look_up("quantization", str(fields["quantization"]), table.data["weight_dtype"])
        if dtype is not None and "drafter" in speculation:
            speculation["drafter_weight_dtype"] = dtype
    if fields.get("enable_adaptive_verification"):
        speculation["adaptive_verification"] = True
    if fields.get(_SCHEDULE):
        speculation[_SCHEDULE] = fields[_SCHEDULE]
    return found


def _check_fields(
    fields: Mapping[str, Any], *, version: str | None, table: FlagTable, found: Reading
) -> None:
    known: Mapping[str, Mapping[str, str]] = table.data["speculative_fields"]
    running = version or engine_versions("vllm")[-1]
    asked = parse_version(running)
    for name, value in fields.items():
        if name not in known:
            close = nearest(name, known)
            hint = f"nearest: {', '.join(close)}" if close else "nothing similar is known"
            raise UsageError(f"--speculative-config has no field {name!r}; {hint}")
        about = known[name]
        gone, before = about.get("absent_from"), about.get("absent_to")
        if gone and not version_before(asked, parse_version(gone)):
            raise UsageError(
                f"--speculative-config field {name!r} is gone since vLLM {gone} at the latest and "
                f"vLLM {running} refuses it; drop it, or name the older version that runs"
            )
        if before and not version_before(parse_version(before), asked):
            raise UsageError(
                f"--speculative-config field {name!r} came after vLLM {before} and vLLM "
                f"{running} refuses it; drop it, or name the newer version that runs"
            )
        if "cost" in about and value not in (None, False, []):
            found.warnings.append(f"speculative-config {name} is not modelled: {about['cost']}")
        elif not _USED & {name} and value is not None:
            found.ignored.append(f"speculative-config {name}")
    if fields.get("tensor_parallel_size") is not None:
        raise UsageError(
            "--speculative-config: 'tensor_parallel_size' is not a field of it (vLLM refuses it); "
            "use 'draft_tensor_parallel_size'"
        )


_SCHEDULE = "num_speculative_tokens_per_batch_size"
_USED = frozenset(
    {
        "method", "model", "num_speculative_tokens", "draft_tensor_parallel_size", "quantization",
        "parallel_drafting", "enable_adaptive_verification", "synthetic_acceptance_rate",
        "synthetic_acceptance_rates", "synthetic_acceptance_length", "rejection_sample_method",
        "suffix_decoding_max_tree_depth", "speculative_token_tree", "tensor_parallel_size",
        _SCHEDULE,
    }
)  # fmt: skip


def _method(fields: Mapping[str, Any], *, table: FlagTable, found: Reading) -> str:
    given, drafter = fields.get("method"), fields.get("model")
    if given is None:
        method = _method_by_name(str(drafter) if drafter is not None else None)
    elif str(given) in table.data["methods_not_modelled"]:
        raise UsageError(f"speculation method {given!r} is not modelled")
    elif str(given).endswith("_mtp"):
        found.warnings.append(f"method {given!r} is a deprecated spelling of 'mtp'")
        method = "mtp"
    else:
        method = look_up("speculation method", str(given), table.data["methods"]) or "none"
    if fields.get("parallel_drafting"):
        method = _PARALLEL.get(method, method)
    return method


def _method_by_name(drafter: str | None) -> str:
    if drafter is None:
        raise UsageError("--speculative-config needs 'method' or 'model'")
    if drafter in ("ngram", "[ngram]"):
        return "ngram"
    lower = drafter.lower()
    for word, method in _NAME_HINTS:
        if word in lower:
            return method
    if re.search(r"\bmtp\b", lower):
        return "mtp"
    if "/" not in drafter and re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", drafter):
        raise UsageError(f"speculation by a class of your own ({drafter}) is not modelled")
    return "draft_model"


def _check_version_has(method: str, version: str | None) -> None:
    if method == "none":
        raise UsageError("--speculative-config: method 'none'; leave the flag out instead")
    versions = engine_versions("vllm")
    constants, _ = load_engine("vllm", version)
    # Between two known versions it is not known when a method came: both must lack it.
    position = versions.index(constants.version)
    newer = versions[position + 1] if version and position + 1 < len(versions) else versions[-1]
    around = {constants.version, newer if version else constants.version}
    if any(method in load_engine("vllm", v)[0].methods for v in around):
        return
    having = [v for v in versions if method in load_engine("vllm", v)[0].methods]
    raise UsageError(
        f"vLLM {version or constants.version} has no speculation method {method!r}; known "
        f"versions with it: {', '.join(having) or 'none'}"
    )


def _draft_tokens(fields: Mapping[str, Any], method: str, found: Reading) -> None:
    k = fields.get("num_speculative_tokens")
    tree = fields.get("speculative_token_tree")
    if k is None and method == "suffix":
        k = fields.get("suffix_decoding_max_tree_depth", 24)
    if k is None:
        if method not in _OWN_LENGTH:
            raise UsageError(
                f"--speculative-config: method {method!r} needs 'num_speculative_tokens'"
            )
        found.warnings.append(
            f"num_speculative_tokens is not given: the drafter's own number is used ({method})"
        )
        return
    if isinstance(k, bool) or not re.fullmatch(r"\d+", str(k)) or not 1 <= int(str(k)) <= 64:
        raise UsageError(f"--speculative-config: num_speculative_tokens is {k!r}; expected 1 to 64")
    found.speculation["num_speculative_tokens"] = int(str(k))
    if tree is not None:
        _tree(str(tree), found)


def _tree(text: str, found: Reading) -> None:
    """Read '[(0,), (1,), (0, 0)]': one path of branch numbers per node."""
    try:
        paths = [tuple(path) for path in ast.literal_eval(text)]
        depth, widest = max(len(p) for p in paths), 1 + max(max(p) for p in paths)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise UsageError(
            f"--speculative-config: speculative_token_tree {text[:40]!r} is not a list of paths "
            "such as '[(0,), (0, 0)]'"
        ) from error
    found.speculation["num_speculative_tokens"] = depth
    if len(paths) > depth:
        found.speculation["tree"] = {"topk": int(widest), "num_draft_tokens": len(paths) + 1}


def _drafter(fields: Mapping[str, Any], method: str, model: str, found: Reading) -> None:
    drafter = fields.get("model")
    if method in ("ngram", "suffix"):
        return
    if drafter is None:
        if method in NEEDS_DRAFTER:
            raise UsageError(f"--speculative-config: method {method!r} needs 'model', the drafter")
        return
    # MTP layers and DSpark heads may sit in the target's own checkpoint.
    if not (method in ("mtp", "dspark") and drafter == model):
        found.speculation["drafter"] = str(drafter)


def _tensor_parallel(fields: Mapping[str, Any], target: int, found: Reading) -> None:
    size = fields.get("draft_tensor_parallel_size")
    if size is None:
        return
    if size not in (1, target) or isinstance(size, bool):
        raise UsageError(
            f"--speculative-config: draft_tensor_parallel_size is {size!r}; vLLM accepts 1 or the "
            f"target's ({target}) only"
        )
    found.speculation["draft_tensor_parallel_size"] = size


def _acceptance(fields: Mapping[str, Any], found: Reading) -> None:
    """Read forced acceptance, as used to measure cost apart from quality."""
    forms = {
        "synthetic_acceptance_length": "length",
        "synthetic_acceptance_rates": "per_position",
        "synthetic_acceptance_rate": "draft_acceptance_rate",
    }
    given = {forms[name]: fields[name] for name in forms if fields.get(name) is not None}
    sampling = fields.get("rejection_sample_method")
    if len(given) > 1:
        raise UsageError("--speculative-config: give one synthetic_acceptance_* field, not several")
    if given and sampling != "synthetic":
        raise UsageError(
            "--speculative-config: synthetic_acceptance_* needs "
            '"rejection_sample_method": "synthetic"'
        )
    if given:
        found.speculation["acceptance"] = given
    elif sampling == "synthetic":
        raise UsageError(
            "--speculative-config: rejection_sample_method 'synthetic' needs "
            "synthetic_acceptance_rates or synthetic_acceptance_length"
        )
    elif sampling == "fly":
        found.warnings.append("rejection_sample_method fly is lossy: it accepts more than measured")
    elif sampling == "block":
        found.warnings.append("rejection_sample_method block accepts slightly more than standard")
