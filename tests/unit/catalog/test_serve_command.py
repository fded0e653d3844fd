"""Pasted serving commands: real-world spellings, versions, refusals, and the way back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.catalog.models import canonical_id
from specsim.catalog.scenario import load_scenario
from specsim.catalog.serve_command import format_serve_command, parse_serve_command
from specsim.errors import SpecsimError, UsageError

EAGLE3 = (
    '{"method": "eagle3", "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", '
    '"num_speculative_tokens": 3}'
)
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def spec(text: str, version: str | None = None) -> dict:
    return parse_serve_command(text, engine_version=version).scenario["speculation"]


def with_config(config: str, version: str | None = None) -> dict:
    return spec(f"vllm serve {LLAMA} -tp 4 --speculative-config '{config}'", version)


def test_a_full_command():
    command = parse_serve_command(
        f"""VLLM_LOGGING_LEVEL=DEBUG vllm serve {LLAMA} \\
            --tensor-parallel-size 2 --gpu-memory-utilization 0.85 --max-model-len 8K \\
            --max-num-seqs=128 --max_num_batched_tokens 16384 --kv-cache-dtype fp8_e4m3 \\
            --async-scheduling --enable-expert-parallel --port 8001 --trust-remote-code \\
            --speculative-config '{EAGLE3}'"""
    )
    assert command.scenario == {
        "target": {"model": LLAMA, "kv_dtype": "fp8"},
        "hardware": {"tensor_parallel_size": 2, "expert_parallel": True},
        "engine": {
            "name": "vllm",
            "gpu_memory_utilization": 0.85,
            "max_num_seqs": 128,
            "max_num_batched_tokens": 16384,
            "async_scheduling": True,
            "max_model_len": 8192,
        },
        "speculation": {
            "method": "eagle3",
            "num_speculative_tokens": 3,
            "drafter": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
        },
    }
    assert command.ignored == ["VLLM_LOGGING_LEVEL", "--port", "--trust-remote-code"]
    assert command.warnings == []


@pytest.mark.parametrize(
    "text",
    [
        f"vllm serve {LLAMA}",
        f"$ vllm serve {LLAMA} > server.log 2>&1 &",
        f"vllm serve {LLAMA} --port 80 2>&1 | tee log.txt",
        f"nohup /opt/venv/bin/vllm serve --port 8000 {LLAMA}",
        f"uv run vllm serve --model {LLAMA}",
        f"python3 -m vllm.entrypoints.openai.api_server --model={LLAMA}",
        f"MODEL={LLAMA}\nexport TP=4\nvllm serve $MODEL",
        f"cd /srv && export HF_TOKEN=x; vllm serve '{LLAMA}' # the small one",
        f"# start it\nvllm serve {LLAMA}\ncurl localhost:8000/v1/models",
        f"vllm serve {LLAMA}\n  --port 8000\n  --host 0.0.0.0",
        f"bash -c 'vllm serve {LLAMA} --port 8000'",
        f"docker run --gpus all -p 8000:8000 --ipc=host vllm/vllm-openai:latest --model {LLAMA}",
        f"docker run -v ~/.cache:/root/.cache vllm/vllm-openai@sha256:ab12 {LLAMA} --port 8000",
        f"vllm serve {LLAMA} --served-model-name a b --port 8000",
        f"vllm serve {LLAMA} --api-key=k --allowed-origins '[\"*\"]' --seed 0",
    ],
)
def test_the_model_is_found_in_any_wrapping(text):
    command = parse_serve_command(text)
    assert command.scenario["target"] == {"model": LLAMA}
    assert command.scenario["engine"]["name"] == "vllm"
    assert "speculation" not in command.scenario


def test_shell_variables_are_filled_in():
    command = parse_serve_command(f"TP=4; vllm serve {LLAMA} -tp ${{TP}}")
    assert command.scenario["hardware"]["tensor_parallel_size"] == 4


@pytest.mark.parametrize(
    "spelling",
    [
        "-tp 4",
        "-tp=4",
        "--tensor-parallel-size=4",
        "--tensor_parallel_size 4",
        "--tensor-parallel 4",
    ],
)
def test_spellings_of_one_flag(spelling):
    command = parse_serve_command(f"vllm serve {LLAMA} {spelling}")
    assert command.scenario["hardware"] == {"tensor_parallel_size": 4}


@pytest.mark.parametrize(
    ("given", "tokens"),
    [("4096", 4096), ("8k", 8000), ("8K", 8192), ("1M", 1048576), ("25.6k", 25600)],
)
def test_lengths_with_suffixes_as_vllm_reads_them(given, tokens):
    command = parse_serve_command(f"vllm serve m --max-model-len {given}")
    assert command.scenario["engine"]["max_model_len"] == tokens


@pytest.mark.parametrize("automatic", ["auto", "-1"])
def test_the_automatic_length_is_the_default(automatic):
    command = parse_serve_command(f"vllm serve m --max-model-len {automatic}")
    assert "max_model_len" not in command.scenario["engine"]


@pytest.mark.parametrize(
    ("flags", "target"),
    [
        ("--quantization fp8", {"weight_dtype": "fp8"}),
        ("-q awq_marlin --dtype half", {"weight_dtype": "int4"}),
        ("--quantization gptq", {"weight_dtype": "int4"}),
        ("--quantization bitsandbytes", {"weight_dtype": "int4"}),
        ("--quantization modelopt", {"weight_dtype": "fp8"}),
        ("--quantization modelopt_fp4", {"weight_dtype": "nvfp4"}),
        ("--quantization compressed-tensors --dtype half", {}),
        ("--dtype half", {"weight_dtype": "fp16"}),
        ("--dtype float32", {"weight_dtype": "fp32"}),
        ("--dtype bfloat16", {}),
        ("--dtype auto --kv-cache-dtype auto", {}),
        ("--kv-cache-dtype fp8", {"kv_dtype": "fp8"}),
        ("--kv-cache-dtype bfloat16", {"kv_dtype": "bf16"}),
    ],
)
def test_dtypes(flags, target):
    command = parse_serve_command(f"vllm serve org/model {flags}")
    assert command.scenario["target"] == {"model": "org/model", **target}


def test_dtype_is_not_that_of_the_weights_of_a_quantised_checkpoint():
    command = parse_serve_command("vllm serve TheBloke/Llama-2-7B-AWQ --dtype half")
    assert command.scenario["target"] == {"model": "TheBloke/Llama-2-7B-AWQ"}
    assert "--dtype" in command.ignored


@pytest.mark.parametrize(
    "flags",
    ["--enforce-eager", "-O0", "-O 0", "--optimization-level 0",
     "--compilation-config '{\"cudagraph_mode\": \"NONE\"}'", "-cc.cudagraph_mode NONE"],
)  # fmt: skip
def test_graphs_off(flags):
    assert parse_serve_command(f"vllm serve m {flags}").scenario["engine"]["cuda_graphs"] is False


@pytest.mark.parametrize(
    "flags",
    ["--compilation-config '{\"max_cudagraph_capture_size\": 1024, \"level\": 3}'",
     "--max-cudagraph-capture-size 1024",
     "--compilation-config '{\"cudagraph_capture_sizes\": [1, 512, 1024]}'",
     "--compilation-config.max_cudagraph_capture_size 1024"],
)  # fmt: skip
def test_larger_graphs(flags):
    command = parse_serve_command(f"vllm serve m {flags} -O3")
    assert command.scenario["engine"]["max_graph_tokens"] == 1024
    assert "cuda_graphs" not in command.scenario["engine"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("docker run --gpus all vllm/vllm-openai:v0.29.0 --model m", "0.29.0"),
        ("podman run quay.io/x/vllm-openai:v0.11.2-cu128 serve m", "0.11.2"),
        ("pip install vllm==0.10.2 && vllm serve m", "0.10.2"),
        ("docker run vllm/vllm-openai:nightly --model m", None),
    ],
)
def test_the_version_comes_from_the_tag_or_pin(text, version):
    assert parse_serve_command(text).scenario["engine"].get("version") == version


def test_a_version_given_wins_over_the_tag():
    command = parse_serve_command(
        "docker run vllm/vllm-openai:v0.29.0 --model m", engine_version="0.33"
    )
    assert command.scenario["engine"]["version"] == "0.33"


@pytest.mark.parametrize(
    "flags",
    [
        f"--speculative-config '{EAGLE3}'",
        f"--speculative_config='{EAGLE3}'",
        f"-sc '{EAGLE3}'",
        "--speculative-config.method eagle3 --speculative-config.num-speculative-tokens 3 "
        "--speculative-config.model=yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
        "--spec-method eagle3 --spec-model yuhuili/EAGLE3-LLaMA3.1-Instruct-8B --spec-tokens 3",
        '-sc \'{"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "num-speculative-tokens": 3}\'',
    ],
)
def test_the_ways_to_write_one_speculation(flags):
    assert spec(f"vllm serve {LLAMA} {flags}") == {
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "drafter": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
    }


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ('{"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":4}',
         {"method": "ngram", "num_speculative_tokens": 5}),
        ('{"model":"[ngram]","num_speculative_tokens":5}',
         {"method": "ngram", "num_speculative_tokens": 5}),
        ('{"method":"ngram_gpu","num_speculative_tokens":5}',
         {"method": "ngram", "num_speculative_tokens": 5}),
        ('{"method":"suffix"}', {"method": "suffix", "num_speculative_tokens": 24}),
        ('{"method":"mtp","num_speculative_tokens":2}',
         {"method": "mtp", "num_speculative_tokens": 2}),
        ('{"method":"deepseek_mtp","num_speculative_tokens":1}',
         {"method": "mtp", "num_speculative_tokens": 1}),
        ('{"method":"qwen3_next_mtp","num_speculative_tokens":2}',
         {"method": "mtp", "num_speculative_tokens": 2}),
        (f'{{"method":"mtp","model":"{LLAMA}","num_speculative_tokens":2}}',
         {"method": "mtp", "num_speculative_tokens": 2}),
        ('{"method":"mtp"}', {"method": "mtp"}),
        ('{"model":"meta-llama/Llama-3.2-1B","num_speculative_tokens":4,"draft_tensor_parallel_size":1}',
         {"method": "draft_model", "drafter": "meta-llama/Llama-3.2-1B",
          "num_speculative_tokens": 4, "draft_tensor_parallel_size": 1}),
        ('{"model":"yuhuili/EAGLE-LLaMA3-Instruct-8B","num_speculative_tokens":4}',
         {"method": "eagle", "drafter": "yuhuili/EAGLE-LLaMA3-Instruct-8B",
          "num_speculative_tokens": 4}),
        ('{"model":"z-lab/Qwen3-8B-DFlash-b16","num_speculative_tokens":15}',
         {"method": "dflash", "drafter": "z-lab/Qwen3-8B-DFlash-b16",
          "num_speculative_tokens": 15}),
        ('{"method":"dspark","model":"x/d","enable_adaptive_verification":true}',
         {"method": "dspark", "drafter": "x/d", "adaptive_verification": True}),
        ('{"method":"eagle3","model":"x/p","num_speculative_tokens":7,"parallel_drafting":true}',
         {"method": "p_eagle", "drafter": "x/p", "num_speculative_tokens": 7}),
        ('{"method":"draft_model","model":"x/p","num_speculative_tokens":7,"parallel_drafting":true}',
         {"method": "pard", "drafter": "x/p", "num_speculative_tokens": 7}),
        ('{"method":"eagle3","model":"x/p","num_speculative_tokens":3,"quantization":"fp8"}',
         {"method": "eagle3", "drafter": "x/p", "num_speculative_tokens": 3,
          "drafter_weight_dtype": "fp8"}),
        ('{"method":"eagle3","model":"x/p","num_speculative_tokens":3,'
         '"rejection_sample_method":"synthetic","synthetic_acceptance_length":2.4}',
         {"method": "eagle3", "drafter": "x/p", "num_speculative_tokens": 3,
          "acceptance": {"length": 2.4}}),
        ('{"method":"eagle3","model":"x/p","num_speculative_tokens":2,'
         '"rejection_sample_method":"synthetic","synthetic_acceptance_rates":[0.8,0.5]}',
         {"method": "eagle3", "drafter": "x/p", "num_speculative_tokens": 2,
          "acceptance": {"per_position": [0.8, 0.5]}}),
    ],
)  # fmt: skip
def test_speculative_configs_of_the_newest_version(config, expected):
    assert with_config(config) == expected


def test_an_older_config_is_understood_by_its_version():
    old = '{"method":"ngram","num_speculative_tokens":3,"disable_by_batch_size":32}'
    command = parse_serve_command(f"vllm serve m -sc '{old}'", engine_version="0.13.0")
    assert command.scenario["speculation"]["method"] == "ngram"
    assert "disable_by_batch_size" in command.warnings[0]
    assert with_config(
        '{"method":"eagle3","model":"x/p","num_speculative_tokens":6,'
        '"speculative_token_tree":"[(0,),(1,),(0,0),(0,1),(1,0),(0,0,0)]"}',
        "0.17.1",
    )["tree"] == {"topk": 2, "num_draft_tokens": 7}
    assert with_config(
        '{"method":"medusa","model":"x/medusa","num_speculative_tokens":3}', "0.29.0"
    )["method"] == "medusa"  # fmt: skip
    # 0.15 lies between two known versions, of which the newer has draft models.
    assert with_config('{"model":"x/y","num_speculative_tokens":3}', "0.15.1")["method"] == (
        "draft_model"
    )


def test_a_schedule_of_k_by_batch_is_kept():
    command = parse_serve_command(
        f"vllm serve {LLAMA} -sc '{EAGLE3[:-1]}, "
        '"num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 64, 1]]}\''
    )
    assert command.scenario["speculation"]["num_speculative_tokens"] == 3
    assert command.scenario["speculation"]["num_speculative_tokens_per_batch_size"] == [
        [1, 8, 3],
        [9, 64, 1],
    ]
    assert not command.warnings


def test_flags_of_version_0_7_and_before():
    text = (
        "python -m vllm.entrypoints.openai.api_server --model facebook/opt-6.7b "
        "--speculative_model facebook/opt-125m --num_speculative_tokens 5 --use-v2-block-manager "
        "--speculative-draft-tensor-parallel-size 1 --swap-space 4 --disable-log-requests"
    )
    command = parse_serve_command(text)
    assert command.scenario["speculation"] == {
        "method": "draft_model",
        "drafter": "facebook/opt-125m",
        "num_speculative_tokens": 5,
        "draft_tensor_parallel_size": 1,
    }
    assert command.scenario["engine"]["version"] == "0.7"
    ngram = (
        "vllm serve m --speculative-model [ngram] --num-speculative-tokens 5 "
        "--ngram-prompt-lookup-max 4"
    )
    assert spec(ngram, "0.6.3") == {"method": "ngram", "num_speculative_tokens": 5}
    with pytest.raises(UsageError, match=r"--speculative-model is gone since vLLM 0\.8"):
        parse_serve_command(ngram, engine_version="0.28")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--cpu-offload-gb 10", "--cpu-offload-gb is not modelled"),
        ("--enable-lora --max-loras 4", "--enable-lora is not modelled"),
        ('--kv-transfer-config \'{"kv_role": "kv_both"}\'', "--kv-transfer-config"),
        ("--data-parallel-size 4", "one replica is modelled"),
        ("--no-enable-chunked-prefill", "--no-enable-chunked-prefill"),
        ("--config serve.yaml", "--config is not read"),
        ('-cc \'{"cudagraph_mode": "PIECEWISE"}\'', "PIECEWISE"),
    ],
)
def test_costs_that_are_not_modelled_are_said(flags, named):
    assert named in parse_serve_command(f"vllm serve m {flags}").warnings[0]


def test_flags_without_effect_are_listed():
    command = parse_serve_command(
        "vllm serve m --no-enable-prefix-caching --cpu-offload-gb 0 --block-size 16 "
        "--enable-auto-tool-choice --tool-call-parser hermes --no-enable-log-requests"
    )
    assert command.ignored[:2] == ["--no-enable-prefix-caching", "--cpu-offload-gb"]
    assert "--tool-call-parser" in command.ignored


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no serving command found"),
        ("ls -la", "no serving command found"),
        ("vllm bench serve --model m", "no serving command found"),
        ("vllm serve", "the command names no model"),
        ("vllm serve --config c.yaml", "--config files are not read"),
        ("vllm serve a b", "names several models: a, b"),
        ("vllm serve $MODEL", "shell variable $MODEL"),
        ("vllm serve 'abc", "unclosed quote"),
        (
            "vllm serve m --tensor-paralel-size 4",
            "no flag '--tensor-paralel-size'; nearest: --tensor-parallel-size",
        ),
        ("vllm serve m --tp 4", "no flag '--tp'"),
        ("vllm serve m --frobnicate", "no flag '--frobnicate'"),
        ("vllm serve m -tp", "-tp needs a value"),
        ("vllm serve m -tp --port 80", "-tp needs a value"),
        ("vllm serve m -tp zero", "--tensor-parallel-size: got 'zero'"),
        ("vllm serve m -tp 0", "at least 1"),
        ("vllm serve m -tp $TP", "got '$TP'"),
        ("vllm serve m --gpu-memory-utilization 90", "--gpu-memory-utilization: got '90'"),
        ("vllm serve m --gpu-memory-utilization nan", "got 'nan'"),
        ("vllm serve m --max-model-len 1.5K", "got '1.5K'"),
        ("vllm serve m --quantization fp9", "--quantization: 'fp9' is not modelled; nearest: fp8"),
        ("vllm serve m --kv-cache-dtype nvfp4", "--kv-cache-dtype: 'nvfp4' is not modelled"),
        (
            "vllm serve m -dp 8 --enable-expert-parallel",
            "--data-parallel-size 8 with --enable-expert-parallel",
        ),
        (
            "vllm serve RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3",
            "is a drafter in speculators format",
        ),
        ('vllm serve m -sc \'{"method": "ngram"\'', "broken JSON"),
        (
            'vllm serve m -sc {"method": "ngram", ...}',
            'broken JSON in \'{"method": "ngram", ...}\'',
        ),
        ("vllm serve m -sc \"{'method': 'ngram'}\"", "broken JSON"),
        ("vllm serve m -sc '[1]'", "expected a JSON object"),
        ("vllm serve m -sc ngram", "broken JSON"),
    ],
)
def test_errors_are_one_line(text, message):
    with pytest.raises(UsageError) as caught:
        parse_serve_command(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


ABBREVIATED = {
    "HEAD": '"method":"eagle3","model":"x","num_speculative_tokens":3',
    "NGRAM": '"method":"ngram","num_speculative_tokens":3',
    "MTP": '"method":"mtp","num_speculative_tokens":3',
}


@pytest.mark.parametrize(
    ("config", "version", "message"),
    [
        (
            '{"method":"ngram","num_spec_tokens":3}',
            None,
            "no field 'num_spec_tokens'; nearest: num_speculative_tokens",
        ),
        (
            '{NGRAM,"disable_by_batch_size":4}',
            None,
            "'disable_by_batch_size' is gone since vLLM 0.17.1",
        ),
        ('{NGRAM,"disable_by_batch_size":4}', "0.17.1", "'disable_by_batch_size' is gone"),
        ('{HEAD,"enable_adaptive_verification":true}', "0.19.1", "came after vLLM 0.25.1"),
        ('{HEAD,"draft_tensor_parallel_size":2}', None, "accepts 1 or the target's (4) only"),
        ('{HEAD,"tensor_parallel_size":1}', None, "use 'draft_tensor_parallel_size'"),
        ('{"method":"eagle3","model":"x"}', None, "needs 'num_speculative_tokens'"),
        (
            '{"method":"eagle3","model":"x","num_speculative_tokens":0}',
            None,
            "num_speculative_tokens is 0",
        ),
        (
            '{"method":"eagle3","model":"x","num_speculative_tokens":true}',
            None,
            "num_speculative_tokens is True",
        ),
        ('{"method":"eagle3","num_speculative_tokens":3}', None, "needs 'model', the drafter"),
        (
            '{"method":"eagel","model":"x","num_speculative_tokens":3}',
            None,
            "'eagel' is not modelled; nearest: eagle",
        ),
        (
            '{"method":"medusa","model":"x","num_speculative_tokens":3}',
            None,
            "vLLM 0.33 has no speculation method 'medusa'",
        ),
        (
            '{"method":"mlp_speculator","model":"x","num_speculative_tokens":3}',
            "0.29",
            "'mlp_speculator' is not modelled",
        ),
        ('{"model":"my_module.MyProposer","num_speculative_tokens":3}', None, "class of your own"),
        ('{"method":"suffix"}', "0.8.5", "has no speculation method 'suffix'"),
        ('{"num_speculative_tokens":3}', None, "needs 'method' or 'model'"),
        ('{MTP,"synthetic_acceptance_length":2}', None, 'needs "rejection_sample_method"'),
        ('{MTP,"rejection_sample_method":"synthetic"}', None, "needs synthetic_acceptance_rates"),
    ],
)
def test_refusals_of_a_speculative_config(config, version, message):
    for short, long in ABBREVIATED.items():
        config = config.replace(short, long)
    with pytest.raises(UsageError) as caught:
        with_config(config, version)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sglang_chain():
    command = parse_serve_command(
        "python3 -m sglang.launch_server --model meta-llama/Llama-3.1-8B-Instruct --tp 2 "
        "--speculative-algorithm EAGLE3 --speculative-draft-model-path yuhuili/x "
        "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 "
        "--mem-fraction-static 0.8 --max-running-requests 64 --chunked-prefill-size 4096 "
        "--kv-cache-dtype fp8_e5m2 --cuda-graph-max-bs 32 --port 30000"
    )
    assert command.scenario == {
        "target": {"model": "meta-llama/Llama-3.1-8B-Instruct", "kv_dtype": "fp8"},
        "hardware": {"tensor_parallel_size": 2},
        "engine": {
            "name": "sglang",
            "gpu_memory_utilization": 0.8,
            "max_num_seqs": 64,
            "max_num_batched_tokens": 4096,
            "max_graph_tokens": 128,
        },
        "speculation": {"method": "eagle3", "drafter": "yuhuili/x", "num_speculative_tokens": 3},
    }
    assert command.ignored == ["--port"]


def test_sglang_tree_and_the_version_of_its_image():
    command = parse_serve_command(
        "docker run lmsysorg/sglang:v0.5.9-cu126 python3 -m sglang.launch_server "
        "--model-path deepseek-ai/DeepSeek-V3 --tp-size 8 --speculative-algorithm NEXTN "
        "--speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16 "
        "--disable-overlap-schedule"
    )
    assert command.scenario["engine"] == {
        "name": "sglang",
        "version": "0.5.9",
        "async_scheduling": False,
    }
    assert command.scenario["speculation"] == {
        "method": "mtp",
        "num_speculative_tokens": 3,
        "tree": {"topk": 4, "num_draft_tokens": 16},
    }


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--speculative-algorithm EAGLE", "--speculative-num-steps is not given"),
        ("--speculative-algorithm UNO", "'UNO' is not modelled"),
        ("--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
         "--speculative-num-draft-tokens 8", "must be num-steps + 1 = 4"),
        ("--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 4",
         "needs --speculative-num-draft-tokens"),
        ("--dp 8 --enable-dp-attention", "attention data parallelism"),
        ("--mem-frac-statc 0.8", "nearest: --mem-fraction-static"),
    ],
)  # fmt: skip
def test_sglang_refusals(flags, message):
    with pytest.raises(UsageError) as caught:
        parse_serve_command(f"python -m sglang.launch_server --model-path m {flags}")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"speculation": {"method": "eagle3", "num_speculative_tokens": 3,
                         "drafter": "AngelSlim/Qwen3-8B_eagle3"}},
        {"speculation": {"method": "p_eagle", "num_speculative_tokens": 7, "drafter": "x/p",
                         "drafter_weight_dtype": "fp8"}},
        {"speculation": {"method": "pard", "num_speculative_tokens": 7, "drafter": "x/p"}},
        {"speculation": {"method": "dspark", "num_speculative_tokens": 5, "drafter": "x/d",
                         "adaptive_verification": True}},
        {"speculation": {"method": "ngram", "num_speculative_tokens": 5}},
        {"speculation": {"method": "mtp", "num_speculative_tokens": 2}},
        {"speculation": {"method": "draft_model", "num_speculative_tokens": 4, "drafter": "x/y",
                         "draft_tensor_parallel_size": 1}},
        {"target": {"model": "org/m", "weight_dtype": "nvfp4", "kv_dtype": "fp8"}},
        {"target": {"model": "org/m", "weight_dtype": "int4", "kv_dtype": "bf16"}},
        {"target": {"model": "org/m", "weight_dtype": "fp16"}},
        {"engine": {"name": "vllm", "gpu_memory_utilization": 0.85, "max_num_seqs": 64,
                    "max_num_batched_tokens": 4096, "max_model_len": 8192, "cuda_graphs": False,
                    "async_scheduling": False, "max_graph_tokens": 1024}},
    ],
)  # fmt: skip
def test_a_formatted_command_reads_back(parts):
    stated = {
        "target": {"model": "org/m"},
        "hardware": {"tensor_parallel_size": 4, "expert_parallel": True},
        "engine": {"name": "vllm"},
        **parts,
    }
    full = {**stated, "hardware": {**stated["hardware"], "accelerator": "h100_sxm"}}
    line = format_serve_command(load_scenario(full))
    assert line.startswith("vllm serve org/m ")
    command = parse_serve_command(line)
    assert command.scenario == stated
    assert command.ignored == command.warnings == []


def test_names_of_the_catalog_become_repositories():
    line = format_serve_command(load_scenario({
        "target": {"model": "llama-3.1-70b"}, "hardware": {"accelerator": "h100_sxm"},
        "speculation": {"method": "eagle", "num_speculative_tokens": 4,
                        "drafter": "eagle-llama3-70b"},
    }))  # fmt: skip
    assert line.startswith("vllm serve meta-llama/Llama-3.1-70B-Instruct ")
    assert '"model": "yuhuili/EAGLE-LLaMA3-Instruct-70B"' in line
    back = parse_serve_command(line).scenario
    assert canonical_id(back["target"]["model"]) == "llama-3.1-70b"
    assert canonical_id(back["speculation"]["drafter"]) == "eagle-llama3-70b"


def test_what_cannot_be_written_is_said():
    base = {"target": {"model": "m"}, "hardware": {"accelerator": "h100_sxm"}}
    tree = {"method": "eagle3", "num_speculative_tokens": 3, "drafter": "x"}
    tree["tree"] = {"topk": 4, "num_draft_tokens": 16}
    with pytest.raises(UsageError, match="vLLM drafts chains"):
        format_serve_command(load_scenario({**base, "speculation": tree}))
    with pytest.raises(UsageError, match="vllm only, not for sglang"):
        format_serve_command(load_scenario({**base, "engine": {"name": "sglang"}}))
    with pytest.raises(UsageError, match=r"needs speculation\.drafter"):
        format_serve_command(load_scenario({**base, "speculation": {"method": "eagle3"}}))


WORDS = st.sampled_from(
    [
        "vllm",
        "serve",
        "docker",
        "run",
        "m",
        "-tp",
        "4",
        "--model",
        "--speculative-config",
        "-sc",
        EAGLE3,
        "'",
        '"',
        "\\",
        "\n",
        "--no-enable-lora",
        "--spec-tokens",
        "$X",
        "X=1",
        ";",
        "#",
        "-O3",
        "--compilation-config",
        "{}",
        "--speculative-config.method",
        "-",
        "--",
        "-1",
        "=",
        "--=",
        "--.",
        "vllm/vllm-openai:v0.29.0",
        "sglang.launch_server",
        "--tp",
        "|",
        ">",
        "2",
        "export",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS, max_size=12), st.sampled_from(["", "vllm serve m ", "vllm serve "]))
def test_no_words_crash_it(words, start):
    try:
        parse_serve_command(start + " ".join(words))
    except SpecsimError:
        pass


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.sampled_from(["", "vllm serve m ", "vllm serve m -sc "]))
def test_no_text_crashes_it(text, start):
    try:
        parse_serve_command(start + text)
    except SpecsimError:
        pass


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=8), x, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["method", "model", "num_speculative_tokens", "draft_tensor_parallel_size", "quantization",
     "parallel_drafting", "speculative_token_tree", "synthetic_acceptance_rates",
     "rejection_sample_method", "suffix_decoding_max_tree_depth", "disable_by_batch_size"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(FIELDS, JSON | st.sampled_from(["eagle3", "ngram", "suffix", "mtp"])),
    st.sampled_from([None, "0.8.5", "0.17.1"]),
)
def test_no_config_crashes_it(config, version):
    import json
    import shlex

    text = f"vllm serve m -sc {shlex.quote(json.dumps({'method': 'ngram', **config}))}"
    try:
        parse_serve_command(text, engine_version=version)
    except SpecsimError:
        pass


def test_of_several_commands_the_first_is_read_and_that_is_said():
    both = f"vllm serve {LLAMA} -tp 2 && vllm serve {LLAMA} -tp 4"
    command = parse_serve_command(both)
    assert command.scenario["hardware"]["tensor_parallel_size"] == 2
    assert "several serving commands: the first is read" in command.warnings
    assert not parse_serve_command(f"vllm serve {LLAMA} && echo done").warnings
