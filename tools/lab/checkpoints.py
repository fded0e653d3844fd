"""Make the lab's checkpoints: a target, and drafters that agree with it on a share of tokens.

Run by the interpreter of the lab's own venv (it needs torch and tokenizers):
`.lab-venv/bin/python tools/lab/checkpoints.py FOLDER [--agree 0.7 0.5]`.

A model here is Llama-shaped and pays the full price of a forward pass, but its attention output and
MLP down projections are zero, so the last hidden state is the embedding of the last token, and its
head is the embedding in another order: the greedy next token is a fixed permutation of the present
one. A drafter whose permutation is the target's on a share `a` of the vocabulary, and another's
token on the rest, is accepted with probability `a` at each position, whatever came before.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse, Replace, Sequence
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, PreTrainedTokenizerFast

VOCABULARY = 8192
SPECIAL = ("<unk>", "<s>", "</s>")
HEAD_DIM = 64
TARGET = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12,
          "num_attention_heads": 16, "num_key_value_heads": 4}  # fmt: skip
DRAFTER = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 2,
           "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip


def config_of(shape: dict[str, int]) -> LlamaConfig:
    """Return the configuration of a Llama of this shape."""
    return LlamaConfig(
        **shape, vocab_size=VOCABULARY, max_position_embeddings=4096, rms_norm_eps=1e-5,
        rope_theta=10000.0, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
        head_dim=HEAD_DIM, dtype="float32", architectures=["LlamaForCausalLM"],
    )  # fmt: skip


def permutation(generator: torch.Generator) -> torch.Tensor:
    """Return one cycle through all tokens that are words; special tokens follow themselves."""
    first = len(SPECIAL)
    order = first + torch.randperm(VOCABULARY - first, generator=generator)
    following = torch.arange(VOCABULARY)
    following[order] = order.roll(-1)
    return following


def disagreeing(following: torch.Tensor, agree: float, generator: torch.Generator) -> torch.Tensor:
    """Return a permutation that differs on a share 1 - `agree` of the words, exactly."""
    first = len(SPECIAL)
    words = first + torch.randperm(VOCABULARY - first, generator=generator)
    differing = words[: round((1 - agree) * len(words))]
    changed = following.clone()
    # Each takes the next one's successor: still a permutation, and none keeps its own.
    changed[differing] = following[differing].roll(1)
    return changed


def weights(
    shape: dict[str, int], following: torch.Tensor, generator: torch.Generator
) -> dict[str, torch.Tensor]:
    """Return the tensors of a model whose greedy next token is `following`."""

    def random(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * 0.02

    hidden, inner = shape["hidden_size"], shape["intermediate_size"]
    query = shape["num_attention_heads"] * HEAD_DIM
    key = shape["num_key_value_heads"] * HEAD_DIM
    embedding = torch.randn(VOCABULARY, hidden, generator=generator)
    head = torch.empty_like(embedding)
    head[following] = embedding  # the row of the next token looks like the present token
    tensors = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": torch.ones(hidden),
        "lm_head.weight": head,
    }
    for layer in range(shape["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        tensors |= {
            f"{at}.input_layernorm.weight": torch.ones(hidden),
            f"{at}.post_attention_layernorm.weight": torch.ones(hidden),
            f"{at}.self_attn.q_proj.weight": random(query, hidden),
            f"{at}.self_attn.k_proj.weight": random(key, hidden),
            f"{at}.self_attn.v_proj.weight": random(key, hidden),
            f"{at}.self_attn.o_proj.weight": torch.zeros(hidden, query),
            f"{at}.mlp.gate_proj.weight": random(inner, hidden),
            f"{at}.mlp.up_proj.weight": random(inner, hidden),
            f"{at}.mlp.down_proj.weight": torch.zeros(hidden, inner),
        }
    return tensors


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of one word per token, so that text and tokens are the same thing."""
    words = [*SPECIAL, *(f"w{number}" for number in range(len(SPECIAL), VOCABULARY))]
    model = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token=SPECIAL[0]))
    model.pre_tokenizer = WhitespaceSplit()
    model.decoder = Sequence([Replace("w", " w"), Fuse()])
    return PreTrainedTokenizerFast(
        tokenizer_object=model, unk_token=SPECIAL[0], bos_token=SPECIAL[1], eos_token=SPECIAL[2],
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


def save(folder: Path, shape: dict[str, int], tensors: dict[str, torch.Tensor]) -> None:
    """Write a checkpoint that vLLM loads."""
    folder.mkdir(parents=True, exist_ok=True)
    config_of(shape).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    size = sum(tensor.numel() for tensor in tensors.values())
    print(f"{folder}: {size / 1e6:.2f} M parameters", flush=True)


def main() -> None:
    """Write `target` and a `drafter_<percent>` for each share, unless they are there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agree", type=float, nargs="+", default=[0.7])
    given = parser.parse_args()
    following = permutation(torch.Generator().manual_seed(0))
    plans = [("target", TARGET, following)]
    for agree in given.agree:
        # Its own seed each: more drafters later do not change the ones before.
        generator = torch.Generator().manual_seed(1000 + round(agree * 1000))
        name = f"drafter_{round(agree * 100)}"
        plans.append((name, DRAFTER, disagreeing(following, agree, generator)))
    for seed, (name, shape, follows) in enumerate(plans):
        stamp = given.folder / name / "made.json"
        made = {"agree": float((follows == following).float().mean()), "shape": shape}
        if stamp.exists() and json.loads(stamp.read_text()) == made:
            continue
        generator = torch.Generator().manual_seed(seed)
        save(given.folder / name, shape, weights(shape, follows, generator))
        stamp.write_text(json.dumps(made))


if __name__ == "__main__":
    main()
