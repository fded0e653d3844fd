"""Serving commands as they are pasted: shells, word processors, and descriptions of containers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specsim.catalog.serve_command import parse_serve_command
from specsim.catalog.serve_shell import split_commands
from specsim.errors import UsageError

NGRAM = '{"method": "ngram", "num_speculative_tokens": 3}'
FULL: dict[str, Any] = {
    "target": {"model": "org/m"},
    "hardware": {"tensor_parallel_size": 2},
    "engine": {"name": "vllm", "max_num_seqs": 8},
    "speculation": {"method": "ngram", "num_speculative_tokens": 3},
}

SPELLINGS = {
    "comment between continued lines": f"""
vllm serve org/m \\
  --max-num-seqs 8 \\
  # don't take 16 here \\
  --tensor-parallel-size 2 \\
  # --enforce-eager
  --speculative-config '{NGRAM}'""",
    "comment before a continuation": f"""
vllm serve org/m --max-num-seqs 8 # eight \\
  --tensor-parallel-size 2 --speculative-config '{NGRAM}'""",
    "comment after a continuation": f"""
vllm serve org/m --max-num-seqs 8 \\  # eight
  --tensor-parallel-size 2 --speculative-config '{NGRAM}'""",
    "cmd": f"""
vllm serve org/m ^
  --max-num-seqs 8 ^
  --tensor-parallel-size 2 ^
  --speculative-config '{NGRAM}'""",
    "PowerShell": """
vllm serve org/m `
  --max-num-seqs 8 `
  --tensor-parallel-size 2 `
  --speculative-config '{\\"method\\": \\"ngram\\", \\"num_speculative_tokens\\": 3}'""",
    "Windows line ends": (
        f"vllm serve org/m \\\r\n--max-num-seqs 8 \\\r\n-tp 2 \\\r\n-sc '{NGRAM}'\r\n"
    ),
    "word processor": (
        "vllm serve org/m \u2013max\u2011num\u2011seqs 8 \u2014tensor-parallel-size\u00a02 "
        "\u2013\u2013speculative-config "
        "\u2018{\u201cmethod\u201d: \u201cngram\u201d, \u201cnum_speculative_tokens\u201d: 3}\u2019"
    ),
    "word processor, short flags": (
        f"vllm serve org/m \u2014max-num-seqs 8 \u2013tp 2 -sc '{NGRAM}'"
    ),
    "defaults of variables": (
        'vllm serve "${MODEL:-org/m}" --max-num-seqs ${SEQS-8} '
        f"--tensor-parallel-size ${{TP:=2}} --speculative-config '{NGRAM}'"
    ),
    "a variable wins over its default": (
        f"MODEL=org/m; vllm serve ${{MODEL:-other}} -tp 2 --max-num-seqs 8 -sc '{NGRAM}'"
    ),
    "JSON list": (
        '["vllm", "serve", "org/m", "-tp", "2", "--max-num-seqs", "8", "-sc", '
        '"{\\"method\\": \\"ngram\\", \\"num_speculative_tokens\\": 3}"]'
    ),
    "Kubernetes, command and args": f"""
        containers:
          - name: server
            image: registry.example/own:1
            command: ["vllm", "serve"]
            args:
              - org/m
              - --tensor-parallel-size
              - 2
              - --max-num-seqs=8
              - --speculative-config
              - '{NGRAM}'""",
    "Kubernetes, a shell": f"""
        env:
          - name: NOT_HERE
        containers:
          - env:
              - name: MODEL
                value: org/m
              - name: TOKEN
                valueFrom: {{secretKeyRef: {{name: a, key: b}}}}
            command: ["/bin/sh", "-c"]
            args:
              - |
                vllm serve $(MODEL) \\
                  --tensor-parallel-size 2 \\
                  --max-num-seqs 8 \\
                  --speculative-config '{NGRAM}'""",
    "args alone": f"""
    args: ["--model", "org/m", "-tp", "2", "--max-num-seqs", "8", "-sc", '{NGRAM}']""",
    "compose": f"""
services:
  llm:
    environment: {{MODEL: org/m}}
    command: >
      vllm serve ${{MODEL}} --tensor-parallel-size 2 --max-num-seqs 8
      --speculative-config '{NGRAM}'
---
services: {{}}""",
    "Dockerfile": f"""
FROM python:3.12
ENV MODEL=org/m
RUN pip install something  # not this
ENTRYPOINT ["vllm", "serve"]
CMD ["org/m", "-tp", "2", \\
     "--max-num-seqs", "8", "-sc", {json.dumps(NGRAM)}]""",
    "Dockerfile, as a shell writes it": f"""
FROM python:3.12
CMD vllm serve org/m -tp 2 \\
    --max-num-seqs 8 -sc '{NGRAM}'""",
}


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling_says_the_same(text: str) -> None:
    command = parse_serve_command(text)
    assert command.scenario == FULL
    assert command.warnings == []


@pytest.mark.parametrize(
    "text",
    [
        "image: vllm/vllm-openai:v0.10.2\nargs: [--model, org/m, --max-num-seqs, 8]",
        "FROM vllm/vllm-openai:v0.10.2\nCMD [\"--model\", \"org/m\", \"--max-num-seqs\", \"8\"]",
        'docker run --gpus all vllm/vllm-openai:v0.10.2 bash -c "vllm serve org/m '
        '--max-num-seqs 8"',
        "image: vllm/vllm-openai:v0.10.2\ncommand: [sh, -c]\n"
        "args: ['vllm serve org/m --max-num-seqs 8']",
    ],
)  # fmt: skip
def test_the_image_gives_the_version(text: str) -> None:
    command = parse_serve_command(text)
    assert command.scenario["target"] == {"model": "org/m"}
    assert command.scenario["engine"] == {"name": "vllm", "version": "0.10.2", "max_num_seqs": 8}


def test_sglang_in_a_container_file() -> None:
    text = """
services:
  llm:
    image: lmsysorg/sglang:v0.5.9
    command: python3 -m sglang.launch_server --model-path org/m --tp-size 2
"""
    scenario = parse_serve_command(text).scenario
    assert scenario["engine"] == {"name": "sglang", "version": "0.5.9"}
    assert scenario["hardware"] == {"tensor_parallel_size": 2}
    alone = parse_serve_command("args: [--model-path, org/m]").scenario
    assert alone["engine"]["name"] == "sglang"


def test_a_variable_without_a_value_stays() -> None:
    with pytest.raises(UsageError, match=r"shell variable \$\{MODEL\}"):
        parse_serve_command("vllm serve ${MODEL}")


def test_an_alias_bomb_is_no_command() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    with pytest.raises(UsageError, match="no serving command"):
        parse_serve_command("\n".join([*rows, "command: [*a9]"]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a '#b' c#d # e", [["a", "#b", "c#d"]]),
        ("a # b\nc", [["a"], ["c"]]),
        ("a 'x # y\n z'", [["a", "x # y\n z"]]),
        ('a "it\'s" # b', [["a", "it's"]]),
        ("A=1 b $A 2>/dev/null", [["A=1", "b", "1"], ["/dev/null"]]),
        ("x=`date` \n y", [["x=`date`"], ["y"]]),
    ],
)
def test_words(text: str, words: list[list[str]]) -> None:
    assert split_commands(text) == words


@pytest.mark.parametrize("launcher", ["vllm serve", "python -m sglang.launch_server --model-path"])
def test_a_dtype_that_is_none_is_refused(launcher: str) -> None:
    with pytest.raises(UsageError, match="--dtype: 'fp7' is not modelled; known: auto, bfloat16"):
        parse_serve_command(f"{launcher} org/m --dtype fp7")
    with pytest.raises(UsageError, match="nearest: float, bfloat16"):
        parse_serve_command(f"{launcher} org/m --dtype bfloat")
    half = parse_serve_command(f"{launcher} org/m --dtype half")
    assert half.scenario["target"]["weight_dtype"] == "fp16"
    quantised = parse_serve_command(f"{launcher} org/m-FP8 --dtype half")
    assert "weight_dtype" not in quantised.scenario["target"]
    assert quantised.ignored == ["--dtype"]
