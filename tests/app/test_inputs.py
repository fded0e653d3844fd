"""The side bar: every control, the link, files and commands, and names that are no names."""

import ast
import datetime as dt
from itertools import pairwise
from pathlib import Path
from typing import Any

import controls
import link
import names
import pytest
import start
import state
import yaml
from streamlit import config
from streamlit.testing.v1 import AppTest

import specsim
from specsim.catalog.scenario import load_scenario
from specsim.errors import InputError, UsageError
from specsim.schema.calibration import (
    Calibration,
    CalibrationAcceptance,
    CalibrationScope,
    CalibrationTraffic,
    FittedParameter,
    LeftOut,
)
from specsim.schema.scenario import Scenario

REPO = Path(__file__).parents[2]
APP = REPO / "app"
# What a page is given, and nothing drawn with it: the side bar alone.
SIDEBAR = f"""
import sys
sys.path[:0] = [p for p in [{str(APP)!r}] if p not in sys.path]
import streamlit as st
from inputs import sidebar
from state import A, scenario_data
st.session_state["asked"] = sidebar()
st.session_state["data"] = scenario_data(A)
"""


def opened(*, session: dict[str, Any] | None = None, **query: str) -> AppTest:
    at = AppTest.from_string(SIDEBAR, default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    for name, value in (session or {}).items():
        at.session_state[name] = value
    at.run()
    assert not at.exception
    return at


def scenario(at: AppTest, side: int = 0) -> Scenario:
    asked = at.session_state["asked"][side]
    assert asked.error == ""
    found: Scenario = asked.scenario
    return found


def error(at: AppTest) -> str:
    asked = at.session_state["asked"][0]
    assert asked.scenario is None
    return str(asked.error)


def said(at: AppTest) -> str:
    return " ".join(warning.value.replace("\\", "") for warning in at.warning)


# The value of every control of the side bar as a link has it, and the key of the scenario that says
# so. Controls that are hidden until another one asks for them name that one.
CONTROLS: dict[str, tuple[str, str, Any, dict[str, str]]] = {
    "model": ("llama-3.1-8b", "target.model", "llama-3.1-8b", {}),
    "gpu": ("h200_sxm", "hardware.accelerator", "h200_sxm", {}),
    "tp": ("8", "hardware.tensor_parallel_size", 8, {}),
    "dtype": ("fp8", "target.weight_dtype", "fp8", {}),
    "kv_dtype": ("fp8", "target.kv_dtype", "fp8", {}),
    "method": ("ngram", "speculation.method", "ngram", {}),
    "drafter": ("llama-3.1-8b", "speculation.drafter", "llama-3.1-8b", {"method": "draft_model"}),
    "k": ("7", "speculation.num_speculative_tokens", 7, {}),
    "draft_tp": ("4", "speculation.draft_tensor_parallel_size", 4, {}),
    "acceptance": ("rate per token", "speculation.acceptance.rate", 0.6, {}),
    "length": ("3.2", "speculation.acceptance.length", 3.2, {}),
    "rate": ("0.7", "speculation.acceptance.rate", 0.7, {"acceptance": "rate per token"}),
    "draft_rate": ("0.5", "speculation.acceptance.draft_acceptance_rate", 0.5,
                   {"acceptance": "accepted / drafted"}),
    "positions": ("0.8, 0.6", "speculation.acceptance.per_position", [0.8, 0.6],
                  {"acceptance": "per position"}),
    "profile": ("eagle/mtbench", "speculation.acceptance.profile", "eagle/mtbench",
                {"acceptance": "profile"}),
    "input_tokens": ("777", "workload.input_tokens", 777.0, {}),
    "output_tokens": ("99", "workload.output_tokens", 99.0, {}),
    "temperature": ("0.3", "workload.temperature", 0.3, {}),
    "engine": ("vllm@0.33", "engine.version", "0.33", {}),
    "settings": ("engine.max_num_seqs=64", "engine.max_num_seqs", 64, {}),
}  # fmt: skip


def at_key(found: Scenario, key: str) -> Any:
    value: Any = found.model_dump(mode="json")
    for part in key.split("."):
        value = value[part]
    return value


@pytest.mark.parametrize("name", CONTROLS)
def test_a_link_holds_every_control(name: str) -> None:
    text, key, value, others = CONTROLS[name]
    if name == "profile":
        text = value = controls.choices("profile", model="llama-3.1-70b", method="eagle")[1]  # type: ignore[index]
    at = opened(**{name: text, **others})
    assert at_key(scenario(at), key) == value
    assert not at.warning
    # The other side has the same controls under keys of its own.
    other = {f"b_{n}": t for n, t in {name: text, **others}.items()}
    at = opened(compare="true", **other)
    assert at_key(scenario(at, 1), key) == value
    assert not at.warning


def test_no_control_is_left_out_here() -> None:
    tested_below = {"load", "loads", "request_rate"}
    assert {*CONTROLS, *tested_below} == set(state.DEFAULTS)


@pytest.mark.parametrize(
    ("kind", "key", "value", "name", "expected"),
    [
        ("selectbox", "method", "none", "speculation.method", "none"),
        ("selectbox", "gpu", "b200_sxm", "hardware.accelerator", "b200_sxm"),
        ("selectbox", "tp", 2, "hardware.tensor_parallel_size", 2),
        ("selectbox", "dtype", "int4", "target.weight_dtype", "int4"),
        ("selectbox", "kv_dtype", "bf16", "target.kv_dtype", "bf16"),
        ("selectbox", "model", "llama-3.1-8b", "target.model", "llama-3.1-8b"),
        ("selectbox", "draft_tp", "default", "speculation.draft_tensor_parallel_size", None),
        ("selectbox", "engine", "sglang", "engine.name", "sglang"),
        ("slider", "k", 2, "speculation.num_speculative_tokens", 2),
        ("select_slider", "length", 1.5, "speculation.acceptance.length", 1.5),
        ("slider", "temperature", 1.0, "workload.temperature", 1.0),
        ("number_input", "input_tokens", 9000, "workload.input_tokens", 9000.0),
        ("number_input", "output_tokens", 10, "workload.output_tokens", 10.0),
        ("text_area", "settings", "workload.burstiness=0.5", "workload.burstiness", 0.5),
    ],
)  # fmt: skip
def test_a_control_is_moved(kind: str, key: str, value: Any, name: str, expected: Any) -> None:
    at = opened()
    getattr(at, kind)(key=key).set_value(value).run()
    assert not at.exception
    assert at_key(scenario(at), name) == expected


def test_presets_are_scenarios_without_a_word_too_much() -> None:
    for kind, key in (("deployments", "deployment"), ("workloads", "workload")):
        for preset in state.PRESETS[kind]:
            at = opened()
            at.selectbox(key=key).set_value(preset).run()
            assert not at.exception
            assert specsim.predict(scenario(at)).points


# The load


@pytest.mark.parametrize("load", ["1", "3", "37", "200", "1023", "4096"])
def test_a_link_may_ask_for_any_load(load: str) -> None:
    at = opened(load=load)
    asked = at.session_state["asked"][0]
    assert asked.load == int(load)
    assert asked.load in asked.scenario.load.concurrency
    assert at.select_slider(key="load").value == int(load)
    assert not at.warning


def test_stops_of_the_load_are_close_in_ratio() -> None:
    stops = controls.LOADS
    assert stops[:16] == tuple(range(1, 17))
    assert all(later / earlier <= 1.125 for earlier, later in pairwise(stops[15:]))
    assert {*state.LOADS} <= {*stops}
    assert len(stops) < 100


def test_the_load_moves_on_and_stands_where_a_click_puts_it() -> None:
    at = opened(load="37")
    at.select_slider(key="load").set_value(64).run()
    assert at.session_state["asked"][0].load == 64
    at.session_state["load"] = 333  # as a callback puts it
    at.select_slider(key="load").set_value(500).run()
    assert at.session_state["asked"][0].load == 500


def test_an_open_loop_counts_per_second() -> None:
    at = opened(loads="per second", request_rate="8")
    assert at.session_state["asked"][0].load == 8.0
    assert 8.0 in (scenario(at).load.request_rate or ())
    at.number_input(key="request_rate").set_value(3.0).run()
    assert at.session_state["asked"][0].load == 3.0


@pytest.mark.parametrize(
    ("settings", "load"),
    [("load.concurrency=[1, 8]", 32.0), ("load.request_rate=[1, 2, 4]", 2.0)],
)
def test_the_load_is_among_those_of_more_settings(settings: str, load: float) -> None:
    at = opened(settings=settings)
    asked = at.session_state["asked"][0]
    assert asked.load == load
    found = scenario(at).load
    assert load in (found.concurrency or found.request_rate or ())


# What a link asks and no control takes


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"engine": "vllm@0.32"}, "engine=vllm@0.32: newest is used"),
        ({"gpu": "h200"}, "gpu=h200: h100_sxm is used (it takes gh200, h200_sxm, ...)"),
        ({"k": "99"}, "k=99: 4 is used (it takes 1 to 16)"),
        ({"k": ""}, "k=: 4 is used"),
        ({"input_tokens": "inf"}, "input_tokens=inf: 512 is used (it takes 1 to 1,000,000)"),
        ({"output_tokens": "9" * 400}, "256 is used (it takes 1 to 1,000,000)"),
        ({"temperature": "nan"}, "temperature=nan: 0.7 is used"),
        ({"loads": ""}, "loads=: in flight is used"),
        ({"load": "abc"}, "load=abc: 32 is used (it takes 1 to 4,096)"),
        ({"load": "99999999999999999999"}, "32 is used"),
        ({"length": "9"}, "length=9: 2.4 is used (it takes 1 to 5)"),
        ({"compare": "maybe"}, "compare=maybe: False is used (it takes true, false)"),
        ({"modle": "x"}, "modle=x: there is no such key (nearest: model)"),
        ({"b_modle": "x"}, "b_modle=x: there is no such key (nearest: b_model)"),
        ({"qqqqqq": "x"}, "qqqqqq=x: there is no such key"),
    ],
)
def test_what_no_control_takes_is_said(query: dict[str, str], words: str) -> None:
    at = opened(**query)
    assert words in said(at)
    at.run()  # the address has lost it by now
    assert words in said(at)
    at.button(key="link_read").click().run()
    assert not at.warning


def test_it_is_said_until_the_control_is_moved() -> None:
    at = opened(k="99", gpu="foo")
    at.slider(key="k").set_value(6).run()
    assert "k=99" not in said(at)
    assert "gpu=foo" in said(at)


def test_nothing_is_said_of_what_is_taken_or_not_drawn() -> None:
    at = opened(compare="FALSE", load="32", k="4", length="2.40", rate="0.3", b_k="3",
                request_rate="7", map_more="x", b_memory_share="0.8", curve="Speedup")  # fmt: skip
    assert not at.warning


def test_of_a_strange_link_little_is_said_and_as_text() -> None:
    at = opened(**{f"<b>**x{n}": "y" * 500 for n in range(100)})
    text = at.warning[0].value
    assert "and 94 more" in text
    assert len(text) < 2000
    assert "<b>" not in text
    assert "\\*\\*x0" in text


def test_keys_of_pages_are_known_to_the_link() -> None:
    """Each key of a control that a page binds to the address begins as `link` says."""
    found = []
    for path in sorted((APP / "views").glob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "bound":
                texts = [n.value for n in ast.walk(call.args[0]) if isinstance(n, ast.Constant)]
                assert texts, f"{path.name}:{call.lineno}: the key cannot be told"
                found.append(str(texts[0]))
    assert len(found) > 10
    assert [key for key in found if not key.startswith(link.PAGE_KEYS)] == []


# Acceptance counted by a calibration


def calibration(**scope: Any) -> Calibration:
    return Calibration(
        created=dt.date(2026, 11, 30),
        specsim="0",
        scope=CalibrationScope(**{
            "accelerator": "h100_sxm", "engine": "vllm", "engine_version": "0.33",
            "model": "llama-3.1-8b", "weight_dtype": "bf16", "kv_dtype": "bf16",
            "method": "eagle3", **scope,
        }),
        traffic=CalibrationTraffic(input_tokens=(512, 512), output_tokens=(256, 256)),
        parameters=(
            FittedParameter(name="host", scale="log", factor=1, low=0.9, high=1.1, prior_sd=0.5,
                            identifiable=True),
        ),
        covariance=((0.0025,),),
        run_log_sd=0.03,
        speedup_log_sd=0.05,
        acceptance=(CalibrationAcceptance(num_speculative_tokens=3, length=2.5, counts=5000),),
        left_out=LeftOut(loads=0),
    )  # fmt: skip


SMALL = {"model": "llama-3.1-8b", "tp": "1", "method": "eagle3", "k": "3"}


def test_counted_acceptance_is_offered_with_a_calibration_of_the_method() -> None:
    assert state.COUNTED not in opened(**SMALL).selectbox(key="acceptance").options
    session = {state.CALIBRATION: calibration()}
    at = opened(session=session, **{**SMALL, "method": "ngram"})
    assert state.COUNTED not in at.selectbox(key="acceptance").options
    at = opened(session=session, **SMALL)
    at.selectbox(key="acceptance").set_value(state.COUNTED).run()
    assert not at.exception
    assert scenario(at).speculation.acceptance is None
    assert "k = 3: 2.5 tokens per drafting step, of 5,000 drafts" in [c.value for c in at.caption]
    found = specsim.predict(scenario(at), calibration=calibration())
    assert found.acceptance is not None
    assert found.acceptance.source == "counted in the calibration's runs"


def test_a_link_with_counted_acceptance_waits_for_its_calibration() -> None:
    at = opened(acceptance=state.COUNTED, **SMALL)
    assert "no calibration that counted any" in error(at)
    assert not at.warning
    at.session_state[state.CALIBRATION] = calibration()
    at.run()
    assert scenario(at).speculation.acceptance is None
    at.selectbox(key="acceptance").set_value("length").run()
    assert scenario(at).speculation.acceptance is not None


def test_acceptance_that_was_counted_elsewhere_is_refused() -> None:
    session = {state.CALIBRATION: calibration(model="llama-3.1-70b")}
    at = opened(session=session, acceptance=state.COUNTED, **SMALL)
    assert "counted acceptance of eagle3 on llama-3.1-70b, not of eagle3 on" in error(at)


# Paths


@pytest.fixture
def open_to_others() -> Any:
    before = config.get_option("server.address")
    config.set_option("server.address", "0.0.0.0")
    yield
    config.set_option("server.address", before)


@pytest.fixture
def at_home() -> Any:
    before = config.get_option("server.address")
    config.set_option("server.address", "127.0.0.1")
    yield
    config.set_option("server.address", before)


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("box.example.org", False),
     (None, False), ("", False)],
)  # fmt: skip
def test_who_can_open_the_app(
    address: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names.st, "get_option", lambda name: address)
    assert names.local() is expected


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "~/x", "~root", ".", "./x", "../x", "a/../../etc", "x.json", "x.YAML", "a/b/c",
     "\\\\host\\share", "C:\\x", " /etc/passwd", "specsim", "specsim/config.json", "org/model"],
)  # fmt: skip
def test_what_is_a_path(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "specsim").mkdir()
    (tmp_path / "org" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert names.is_path(name)


@pytest.mark.parametrize(
    "name",
    ["llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B-AWQ", "a\0b", "x" * 9999,
     "eagle3-qwen3-8b (AngelSlim)"],
)  # fmt: skip
def test_what_is_a_name(name: str) -> None:
    assert not names.is_path(name)


def test_no_name_of_the_catalog_is_taken_for_a_path() -> None:
    from specsim.catalog.hardware import hardware_ids
    from specsim.catalog.models import drafter_ids, model_ids

    known = [*model_ids(), *drafter_ids(), *hardware_ids()]
    assert [name for name in known if names.is_path(name)] == []


def test_every_key_that_may_be_a_path_is_refused() -> None:
    """The schema says of which keys: those that `refuse_paths` reads, and no others."""
    found = set()
    for part, field in Scenario.model_fields.items():
        for name, inner in getattr(field.annotation, "model_fields", {}).items():
            if "path of" in (inner.description or ""):
                found.add(f"{part}.{name}")
    assert found == {"target.model", "hardware.accelerator", "speculation.drafter"}
    data = {"target": {"model": "llama-3.1-8b"}, "hardware": {"accelerator": "h100"},
            "speculation": {"method": "draft_model", "drafter": "llama-3.2-1b"}}  # fmt: skip
    for key in found:
        with pytest.raises(UsageError, match=key):
            names.refuse_paths(load_scenario(data, overrides={key: "/etc/hostname"}), own="")


@pytest.mark.parametrize(
    "query",
    [
        {"model": "/etc/hostname"},
        {"method": "draft_model", "drafter": "/etc/hostname"},
        {"settings": "target.model=/etc/hostname"},
        {"settings": "target={model: /etc/hostname}"},
        {"settings": "hardware.accelerator=/etc/hostname"},
        {"settings": "speculation.drafter=~/x"},
    ],
)
def test_a_stranger_reads_no_file(query: dict[str, str], open_to_others: None) -> None:
    text = error(opened(**query))
    assert "files of this server are not read" in text
    assert "\n" not in text


def test_names_are_still_names(open_to_others: None) -> None:
    at = opened(model="meta-llama/Llama-3.1-8B-Instruct", tp="1")
    assert scenario(at).target.model == "meta-llama/Llama-3.1-8B-Instruct"


def test_a_pasted_path_is_refused(open_to_others: None) -> None:
    at = opened()
    at.text_area(key="pasted").set_value("vllm serve /etc/hostname").run()
    at.button(key="use").click().run()
    assert not at.exception
    assert "files of this server" in error(at)


def test_the_own_upload_is_read_by_strangers_too(open_to_others: None) -> None:
    at = opened(method="none", tp="1")
    config_json = (
        b'{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, '
        b'"intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, '
        b'"num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16", '
        b'"head_dim": 64, "max_position_embeddings": 8192, "tie_word_embeddings": true}'
    )
    at.file_uploader(key="config").set_value(("c.json", config_json, "application/json")).run()
    assert not at.exception
    assert scenario(at).target.model.endswith("config.json")
    path = scenario(at).target.model
    assert "files of this server" in error(opened(model=path))


def test_at_home_a_path_is_a_model(at_home: None, tmp_path: Path) -> None:
    assert scenario(opened(model=str(tmp_path))).target.model == str(tmp_path)


# From a file


def uploaded(text: str | bytes, name: str = "scenario.yaml", **query: str) -> AppTest:
    at = opened(**query)
    content = text.encode() if isinstance(text, str) else text
    at.file_uploader(key="scenario_upload").set_value((name, content, "application/yaml")).run()
    assert not at.exception
    return at


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"method": "none"},
        {"load": "37"},
        {"loads": "per second", "request_rate": "7.3"},
        {"model": "llama-3.1-8b", "gpu": "l40s", "tp": "1", "method": "ngram", "length": "1.6"},
        {
            "method": "draft_model",
            "drafter": "llama-3.1-8b",
            "draft_tp": "4",
            "engine": "vllm@0.33",
        },
        {"acceptance": "per position", "positions": "0.81, 0.6, 0.4"},
        {"acceptance": "rate per token", "rate": "0.7", "temperature": "0.0"},
        {"acceptance": "accepted / drafted", "draft_rate": "0.31"},
        {"acceptance": "profile"},
        {"dtype": "fp8", "kv_dtype": "fp8", "k": "16", "length": "11.15", "input_tokens": "16000"},
        {"settings": "engine.max_num_seqs=64\nworkload.burstiness=0.2; engine.version='0.30'"},
        {"settings": "speculation.num_speculative_tokens=20"},
        {"settings": "load.concurrency=[1, 2.5, 8]"},
    ],
)
def test_what_is_saved_opens_as_it_was(query: dict[str, str]) -> None:
    before = opened(**query)
    data = before.session_state["data"]
    if "settings" in query:
        data = scenario(before).model_dump(mode="json", exclude_unset=True)
    at = uploaded(yaml.safe_dump(data), compare="false")
    if "settings" not in query:
        assert at.session_state["data"] == data
        assert at.text_area(key="settings").value == ""
    kept = {"name"}
    assert scenario(at).model_dump(exclude=kept) == scenario(before).model_dump(exclude=kept)
    assert at.session_state["asked"][0].load in (
        scenario(at).load.concurrency or scenario(at).load.request_rate or ()
    )


@pytest.mark.parametrize("path", sorted((REPO / "examples").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_example_opens(path: Path) -> None:
    wanted = load_scenario(path)
    at = uploaded(path.read_bytes())
    found = scenario(at)
    kept = {"name", "load"}
    assert found.model_dump(exclude=kept) == wanted.model_dump(exclude=kept)
    loads = found.load.concurrency or found.load.request_rate or ()
    assert {*loads} >= {*(wanted.load.concurrency or wanted.load.request_rate or ())}
    assert "Taken from scenario.yaml" in " ".join(c.value for c in at.caption).replace("\\", "")


def test_the_drafter_of_a_file_goes_by_the_catalogs_name() -> None:
    at = uploaded(
        "{target: {model: llama-3.1-8b}, hardware: {accelerator: h100_sxm}, speculation: {method: "
        "eagle3, drafter: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B, num_speculative_tokens: 3, "
        "acceptance: {length: 2.2, counts: 100}}}"
    )
    assert at.selectbox(key="drafter").value == "eagle3-llama3.1-8b"
    assert at.select_slider(key="length").value == 2.2
    assert at.text_area(key="settings").value.splitlines()[0].startswith("speculation.acceptance=")
    assert at_key(scenario(at), "speculation.acceptance.counts") == 100
    assert scenario(at).workload.temperature == 0.0


def test_a_file_without_acceptance_takes_the_counted_one() -> None:
    text = (
        "{target: {model: llama-3.1-8b}, hardware: {accelerator: h100_sxm}, "
        "speculation: {method: eagle3, num_speculative_tokens: 3}}"
    )
    at = uploaded(text)
    assert scenario(at).speculation.acceptance is None
    assert at.text_area(key="settings").value == (
        "speculation.acceptance=null\nload.concurrency=[1, 2, 4, 8, 16, 32, 64, 128, 256]"
    )
    at = opened(session={state.CALIBRATION: calibration()})
    at.file_uploader(key="scenario_upload").set_value(("s.yaml", text.encode(), "")).run()
    assert at.selectbox(key="acceptance").value == state.COUNTED
    assert "acceptance" not in at.text_area(key="settings").value


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\0\1\2", "broken"),
        (b"\xff\xfe\xfa", "not text"),
        (b"PK\x03\x04" + b"\x90" * 50, "not text"),
        (b"[1, 2]", "is a list, expected a scenario"),
        (b"{a: 1}", "expected a scenario"),
        (b"{model_type: llama}", "is a config.json, expected a scenario"),
        (b"{target: {model: x}}", "hardware"),
        (b"{target: {model: x}, hardware: {accelerator: y}, wrkload: {}}", "wrkload"),
        (b"{target: {model: x}, hardware: {accelerator: y}, load: {concurrency: []}}", "no load"),
        (b"{" * 5000, "broken"),
        (b"a: &a [*a]", "anchor"),
        (b"x" * (4 * 2**20 + 1), "too much"),
    ],
)
def test_what_is_no_scenario_is_a_sentence(content: bytes, words: str) -> None:
    at = uploaded(content, "../../etc/**passwd**.yaml")
    assert len(at.error) == 1
    text = at.error[0].value
    assert "passwd\\*\\*" in text
    assert words in text.replace("\\", "")
    assert "\n" not in text
    assert scenario(at).target.model == "llama-3.1-70b"  # nothing has changed


def test_a_file_cannot_read_files_either(open_to_others: None) -> None:
    at = uploaded("{target: {model: /etc/hostname}, hardware: {accelerator: h100_sxm}}")
    assert "files of this server" in error(at)


# From a command


def pasted(text: str, **query: str) -> AppTest:
    at = opened(**query)
    at.text_area(key="pasted").set_value(text).run()
    at.button(key="use").click().run()
    assert not at.exception
    return at


def test_a_command_fills_the_controls() -> None:
    at = pasted(
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64 --kv-cache-dtype fp8 "
        '--speculative-config \'{"method": "eagle3", "num_speculative_tokens": 3, '
        '"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}\'',
        dtype="fp8", engine="sglang", input_tokens="777", length="5",
    )  # fmt: skip
    found = scenario(at)
    assert at.selectbox(key="drafter").value == "eagle3-llama3.1-8b"
    assert at.text_area(key="settings").value == "engine.max_num_seqs=64"
    assert (found.hardware.tensor_parallel_size, found.target.weight_dtype) == (1, None)
    assert (found.engine.name, found.engine.max_num_seqs) == ("vllm", 64)
    assert found.target.kv_dtype == "fp8"
    assert found.workload.input_tokens == 777
    assert found.speculation.acceptance is not None
    assert found.speculation.acceptance.length == 4.0  # no step of three drafts yields five
    assert at.selectbox(key="deployment").value == state.CUSTOM


def test_what_no_control_holds_of_a_command_is_in_more_settings() -> None:
    at = pasted(
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 3 "
        '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 20}\''
    )
    found = scenario(at)
    assert found.hardware.tensor_parallel_size == 3
    assert found.speculation.num_speculative_tokens == 20
    assert found.speculation.acceptance is not None
    assert found.speculation.acceptance.measured_at_k is None


def test_a_command_without_speculation_turns_it_off() -> None:
    at = pasted("vllm serve meta-llama/Llama-3.1-8B-Instruct", acceptance="profile")
    assert scenario(at).speculation.method == "none"


def test_a_command_takes_a_profile_of_its_own_method() -> None:
    at = pasted(
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --speculative-config "
        '\'{"method": "ngram", "num_speculative_tokens": 3}\'',
        acceptance="profile",
    )
    acceptance = scenario(at).speculation.acceptance
    assert acceptance is not None
    assert str(acceptance.profile).startswith("ngram/")


@pytest.mark.parametrize("text", ["", "rm -rf /", "vllm serve", "vllm serve x --no-such-flag 3"])
def test_what_is_no_command_is_a_sentence(text: str) -> None:
    at = pasted(text)
    assert len(at.error) == 1
    assert scenario(at).target.model == "llama-3.1-70b"


# Small laws


def test_a_line_of_settings_reads_back() -> None:
    for value in ("full", "0.33", "a; b", "null", "x: y", 1, 2.0, 0.5, True, None, [1.0, 2.5]):
        line = start.text_of(value)
        assert ";" not in line
        assert yaml.safe_load(line) == value


def test_a_foreign_upload_is_refused_before_it_is_read() -> None:
    class Large:
        name, size = "x", 10**9

        def getbuffer(self) -> memoryview:
            raise AssertionError("read")

    with pytest.raises(InputError, match="too much"):
        start.read_scenario(Large(), "x")


def test_a_drafter_of_another_method_is_not_asked_for() -> None:
    at = opened(method="draft_model", drafter="llama-3.1-8b")
    at.selectbox(key="method").set_value("medusa").run()
    assert scenario(at).speculation.drafter is None


def test_tokens_per_step_stay_within_k() -> None:
    at = opened(length="3.2")
    at.slider(key="k").set_value(6).run()
    assert at.select_slider(key="length").value == 3.2
    at.slider(key="k").set_value(1).run()
    assert not at.exception
    assert at.select_slider(key="length").value == 2.0
    assert at_key(scenario(at), "speculation.acceptance.length") == 2.0


def test_controls_stay_the_same_ones_whatever_is_chosen() -> None:
    """A control that became another one would lose its part of the link."""

    def ids(at: AppTest) -> dict[str, str]:
        drawn = [*at.selectbox, *at.slider, *at.number_input, *at.select_slider, *at.text_input]
        return {str(widget.key): widget.id for widget in drawn}

    at = opened()
    before = ids(at)
    for preset in state.PRESETS["deployments"]:
        at.selectbox(key="deployment").set_value(preset).run()
        now = ids(at)
        assert {key: now[key] for key in before if key in now} == {
            key: before[key] for key in before if key in now
        }
    assert {"length", "k", "load", "draft_tp"} <= {*now}


# What a preset leaves, and what a command keeps


def test_presets_leave_nothing_of_what_stood_before() -> None:
    settings = "engine.max_num_seqs=64; load.concurrency=[1, 2]; target.kv_dtype=fp8"
    at = opened(settings=settings, engine="vllm@0.10", dtype="fp8", input_tokens="99", k="7")
    at.selectbox(key="deployment").set_value("Llama-3.1-8B · L40S · n-gram").run()
    assert at.text_area(key="settings").value == "load.concurrency=[1, 2]"
    assert at.selectbox(key="engine").value == "newest"
    assert at.number_input(key="input_tokens").value == 99
    at.selectbox(key="workload").set_value("RAG").run()
    assert at.text_area(key="settings").value == ""
    found = scenario(at)
    assert (found.target.model, found.target.weight_dtype) == ("llama-3.1-8b", None)
    assert (found.workload.input_tokens, found.engine.version) == (4000, None)
    assert found.speculation.num_speculative_tokens == 3


def test_a_command_is_used_by_a_click_that_comes_with_it() -> None:
    at = opened()
    at.text_area(key="pasted").set_value("vllm serve Qwen/Qwen3-32B -tp 2")
    at.button(key="use").click().run()  # what was typed arrives in the same run
    assert scenario(at).target.model == "Qwen/Qwen3-32B"


def test_a_command_says_what_it_does_not_state() -> None:
    config = '{"method": "ngram", "num_speculative_tokens": 20}'
    at = pasted(f"vllm serve Qwen/Qwen3-32B --speculative-config '{config}'")
    text = at.info[0].value.replace("\\", "")
    assert "In More settings: speculation.num_speculative_tokens" in text
    assert "Acceptance (length 2.4) and traffic are not in a command" in text
    assert "acceptance decides the answer" in text


def test_a_command_of_megabytes_is_a_sentence() -> None:
    at = pasted("vllm serve " + "a" * 5_000_000)
    assert "5,000,011 letters" in at.error[0].value.replace("\\", "")
    assert len(at.error[0].value) < 300


@pytest.mark.parametrize(
    ("text", "load"),
    [("{request_rate: [0.001]}", 0.001), ("{request_rate: [200000]}", 200000.0)],
)
def test_a_file_is_asked_about_at_its_own_load(text: str, load: float) -> None:
    at = uploaded(
        f"{{target: {{model: llama-3.1-8b}}, hardware: {{accelerator: h100_sxm}}, load: {text}}}"
    )
    assert at.session_state["asked"][0].load == load


def test_numbers_of_a_link_may_be_written_otherwise() -> None:
    at = opened(length="3.00", load="64.0")
    assert not at.warning
    assert at.session_state["asked"][0].load == 64.0
    given = scenario(at).speculation.acceptance
    assert given is not None
    assert given.length == 3.0


def test_an_open_server_does_not_tell_which_files_it_has(
    open_to_others: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    answers = {name: error(opened(model=name)).replace(name, "NAME") for name in ("here", "away")}
    assert answers["here"] == answers["away"]
    assert "is not in the catalog" in answers["here"]


def test_a_setting_given_twice_is_refused() -> None:
    at = opened(settings="engine.max_num_seqs=256;engine.max_num_seqs=2")
    assert "engine.max_num_seqs is given twice" in error(at)


def test_the_preset_that_stands_is_the_one_that_the_controls_make() -> None:
    at = opened()
    assert at.selectbox(key="deployment").value.startswith("Llama-3.3-70B")
    assert at.selectbox(key="workload").value == "chat"
    at.slider(key="k").set_value(7).run()
    assert at.selectbox(key="deployment").value == state.CUSTOM
    reopened = opened(input_tokens="4000", output_tokens="300", temperature="0.0", load="16")
    assert reopened.selectbox(key="workload").value == "RAG"
