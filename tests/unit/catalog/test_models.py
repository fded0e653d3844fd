"""Looking models and drafters up by every kind of name."""

import re

import pytest
import yaml

from specsim.catalog import models
from specsim.catalog.files import data_dir, read_shipped
from specsim.catalog.models import (
    canonical_id,
    drafter_ids,
    drafters_for,
    load_drafter,
    load_model,
    model_ids,
    resolve_name,
)
from specsim.errors import InputError, NotFoundError
from specsim.schema.model import DrafterSpec, ModelSpec


@pytest.fixture(autouse=True)
def _no_user_catalog(monkeypatch, tmp_path):
    monkeypatch.delenv("SPECSIM_CATALOG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))


def test_every_file_is_found_under_its_id():
    assert len(model_ids()) >= 67
    assert len(drafter_ids()) >= 31
    assert [load_model(entry).id for entry in model_ids()] == model_ids()
    assert [load_drafter(entry).id for entry in drafter_ids()] == drafter_ids()
    assert not set(model_ids()) & set(drafter_ids())


@pytest.mark.parametrize("folder", ["models", "drafters"])
def test_every_alias_leads_to_an_entry(folder):
    known = model_ids() if folder == "models" else drafter_ids()
    aliases = read_shipped(data_dir("aliases.yaml"))[folder]
    assert {alias: entry for alias, entry in aliases.items() if entry not in known} == {}
    for alias, entry in aliases.items():
        assert canonical_id(alias) == entry


def test_an_id_that_is_no_file_stem_has_an_alias():
    aliases = read_shipped(data_dir("aliases.yaml"))
    named = {*aliases["models"].values(), *aliases["drafters"].values()}
    odd = [e for e in model_ids() + drafter_ids() if not re.fullmatch(r"[a-z0-9.-]+", e)]
    assert set(odd) == {"eagle3-qwen3-8b (AngelSlim)", "medusa-vicuna-7b (5 heads)"}
    assert set(odd) <= named


def test_every_drafter_has_a_known_target_with_its_hidden_size():
    for entry in drafter_ids():
        spec = load_drafter(entry)
        target = load_model(spec.target)
        assert spec.target == target.id
        assert spec.target_hidden_size == target.hidden_size
        assert spec.vocab_size == target.vocab_size


def test_every_entry_states_its_source():
    specs = [load_model(e) for e in model_ids()] + [load_drafter(e) for e in drafter_ids()]
    assert [spec.id for spec in specs if not spec.source] == []


@pytest.mark.parametrize(
    ("name", "entry", "dtype"),
    [
        ("qwen3-8b", "qwen3-8b", None),
        ("QWEN3-8B", "qwen3-8b", None),
        ("Qwen/Qwen3-8B", "qwen3-8b", None),
        ("someone/Qwen3-8B", "qwen3-8b", None),
        ("Qwen/Qwen3-32B-FP8", "qwen3-32b", "fp8"),
        ("Qwen/Qwen3-32B-FP8-Static-PerTensor", "qwen3-32b", "fp8"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "qwen2.5-72b", "int4"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8", "qwen2.5-72b", "int8"),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama-3.1-70b", "int4"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "llama-3.1-8b", "fp8"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama-3.1-8b", "int4"),
        ("nvidia/Llama-3.3-70B-Instruct-NVFP4", "llama-3.1-70b", "nvfp4"),
        ("nvidia/DeepSeek-R1-0528-FP4", "deepseek-v3", "nvfp4"),
        ("lmsys/EAGLE3-gpt-oss-120b-bf16", "eagle3-gpt-oss-120b", None),
        ("glm-5.2", "glm-5", None),
        ("kimi-k2.6", "kimi-k2", None),
        ("qwen3.8-27b", "qwen3.5-27b-text", None),
        ("gpt-6", None, None),
    ],
)
def test_resolve_name(name, entry, dtype):
    assert resolve_name(name) == (entry, dtype)


def test_the_dtype_in_a_name_covers_experts():
    assert load_model("Qwen/Qwen3-8B-AWQ").weight_dtype == "int4"
    native, converted = load_model("openai/gpt-oss-20b"), load_model("lmsys/gpt-oss-20b-bf16")
    assert (native.weight_dtype, native.expert_dtype) == ("bf16", "mxfp4")
    assert (converted.weight_dtype, converted.expert_dtype) == ("bf16", None)


def test_native_dtypes():
    assert load_model("deepseek-v3").weight_dtype == "fp8"
    flash = load_model("deepseek-v4-flash")
    assert (flash.weight_dtype, flash.expert_dtype, flash.kv_dtype) == ("fp8", "mxfp4", "fp8")


def test_layer_patterns():
    def groups(entry):
        return [(g.count, getattr(g.attention, "window", None)) for g in load_model(entry).layers]

    assert groups("gemma-2-9b") == [(21, 4096), (21, None)]
    assert groups("gemma-3-27b-text") == [(52, 1024), (10, None)]
    assert groups("gemma-4-31b") == [(50, 1024), (10, None)]
    assert groups("gpt-oss-120b") == [(18, 128), (18, None)]
    assert groups("mistral-7b-v0.1") == [(32, 4096)]
    assert [g.count for g in load_model("deepseek-v3").layers] == [3, 58]
    kinds = [(g.count, g.attention.kind) for g in load_model("qwen3.5-27b-text").layers]
    assert kinds == [(48, "linear"), (16, "full")]
    ratios = [(g.count, g.attention.compress_ratio) for g in load_model("deepseek-v4-flash").layers]
    assert ratios == [(2, 0), (21, 4), (20, 128)]


def test_drafters_for_a_target():
    found = [d.id for d in drafters_for("meta-llama/Llama-3.1-8B-Instruct")]
    assert found == ["eagle-llama3-8b", "eagle3-llama3.1-8b"]
    assert [d.id for d in drafters_for("llama-3.3-70b", "eagle3")] == ["eagle3-llama3.3-70b"]
    assert drafters_for("phi-4") == []
    assert drafters_for("no-such-model") == []


def test_index_of_targets_is_what_the_files_say():
    by_target = {}
    for entry in drafter_ids():
        by_target.setdefault(load_drafter(entry).target, set()).add(entry)
    for target, entries in by_target.items():
        assert {d.id for d in drafters_for(target)} == entries


def test_a_drafter_may_be_a_model():
    assert isinstance(load_drafter("Qwen/Qwen3-0.6B"), ModelSpec)
    assert isinstance(load_drafter("AngelSlim/Qwen3-8B_eagle3"), DrafterSpec)


def test_one_file_is_read_for_an_id(monkeypatch):
    read = []
    monkeypatch.setattr(
        models, "read_shipped", lambda path: read.append(path) or read_shipped(path)
    )
    load_model("qwen3-8b")
    assert {path.name for path in read} == {"qwen3-8b.yaml"}


def test_unknown_names():
    with pytest.raises(
        NotFoundError, match=r"unknown model 'qwen3-9b'; nearest: qwen3-8b.*--models"
    ):
        load_model("qwen3-9b")
    with pytest.raises(
        NotFoundError, match=r"unknown drafter 'eagle3-lama3.1-8b'; nearest: eagle3"
    ):
        load_drafter("eagle3-lama3.1-8b")
    with pytest.raises(NotFoundError, match="unknown model"):
        load_model("eagle3-llama3.1-8b")
    with pytest.raises(NotFoundError, match="unknown model"):
        load_model("x" * 5000)
    assert canonical_id("no-such-model") is None


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/config.json", "missing.yaml"])
def test_missing_paths(name):
    with pytest.raises(InputError, match="no such file"):
        load_model(name)


def _own(tmp_path, entry, **changes):
    data = {**load_model(entry).model_dump(exclude_none=True, mode="json"), **changes}
    path = tmp_path / f"{changes.get('id', entry)}.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


def test_own_file_wins_over_the_shipped_one(tmp_path):
    path = _own(tmp_path, "qwen3-8b", note="mine")
    assert load_model("qwen3-8b", search=[path]).note == "mine"
    assert load_model("Qwen/Qwen3-8B", search=[tmp_path]).note == "mine"
    assert load_model("qwen3-8b").note != "mine"


def test_own_models_and_drafters_are_listed(tmp_path):
    _own(tmp_path, "qwen3-8b", id="house-8b")
    head = load_drafter("eagle3-llama3.1-8b").model_dump(exclude_none=True, mode="json")
    head |= {"id": "house-eagle3", "target": "house-8b"}
    (tmp_path / "house-eagle3.yaml").write_text(yaml.safe_dump(head))
    (tmp_path / "card.yaml").write_text("identity: {id: x}\n")
    assert "house-8b" in model_ids([tmp_path])
    assert "house-eagle3" in drafter_ids([tmp_path])
    assert [d.id for d in drafters_for("house-8b", search=[tmp_path])] == ["house-eagle3"]
    assert load_drafter("house-eagle3", search=[tmp_path]).target == "house-8b"


def test_a_yaml_file_by_path(tmp_path):
    path = _own(tmp_path, "qwen3-8b", id="house-8b")
    assert load_model(path).id == "house-8b"
    path.write_text("hidden_sise: 4\n")
    with pytest.raises(InputError, match="unknown key 'hidden_sise'; nearest known: hidden_size"):
        load_model(path)


def test_a_drafter_is_no_target(tmp_path):
    head = load_drafter("eagle3-llama3.1-8b").model_dump(exclude_none=True, mode="json")
    path = tmp_path / "head.yaml"
    path.write_text(yaml.safe_dump(head))
    assert load_drafter(path).kind == "eagle3"
    with pytest.raises(InputError, match=r"is a drafter \(eagle3\)"):
        load_model(path)


@pytest.mark.parametrize(
    ("name", "by_block"),
    [
        ("deepseek-v3", True),
        ("deepseek-ai/DeepSeek-R1", True),
        ("deepseek-v3.2", True),
        ("deepseek-v4-flash", True),
        ("deepseek-v4-pro", True),
        ("kimi-k2", True),
        ("minimax-m2.5", True),
        ("nvidia/DeepSeek-R1-NVFP4", False),
        ("Qwen/Qwen3-32B-FP8", True),
        ("RedHatAI/Qwen3-32B-FP8-block", True),
        ("RedHatAI/Qwen3-32B-FP8-dynamic", False),
        ("qwen3-32b", False),
        ("llama-3.1-8b", False),
    ],
)
def test_which_fp8_weights_have_a_scale_per_block(name, by_block):
    assert load_model(name).weight_block is by_block


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("target: {model: a}\nhardware: {accelerator: b}\n", "a scenario"),
        ("identity: {id: x}\ndatasheet: {memory_gb: 80}\n", "a hardware profile"),
        ("case: a/b\nscenario: {}\npoints: []\n", "a case"),
        ("id: a\ndataset: b\npoints: []\n", "an acceptance profile"),
    ],
)
def test_another_kind_of_file_is_named(tmp_path, text, kind):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    for load in (load_model, load_drafter):
        with pytest.raises(InputError, match=f"is {kind}, expected a model or a drafter"):
            load(path)


def test_an_empty_name_is_no_file():
    for load in (load_model, load_drafter):
        with pytest.raises(InputError, match="model '': no such file"):
            load("")
