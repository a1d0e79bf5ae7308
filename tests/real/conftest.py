"""A tiny model whose answers depend on all it reads, and a second, stock one with the same weights."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3ForCausalLM

from real.weights import model_config, random_model
from sim.models import ModelShape
from traces.trace import Ints, Trace

CPU = torch.device("cpu")
# Untied and with large weights: tied or at the usual deviation, a random model only repeats its last token,
# and every mask would pass.
TINY = ModelShape("tiny", 64, 128, 2, 4, 2, 16, 512, False)
STD = 0.1

Answer = Callable[[Ints, int], list[int]]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tiny_model(seed: int = 0) -> Any:
    return random_model(TINY, CPU, torch.float32, seed, STD)


@pytest.fixture(scope="session")
def model() -> Any:
    return tiny_model()


@pytest.fixture(scope="session")
def stock(model: Any) -> Any:
    """The library's own model with the same weights: its own init, attention, mask, cache and positions."""
    stock = Qwen3ForCausalLM(model_config(TINY)).eval()
    stock.load_state_dict(model.state_dict())
    return stock


@pytest.fixture(scope="session")
def alone(stock: Any) -> Answer:
    """What ``generate`` of the stock model answers to one prompt alone, greedily, to a forced length."""

    def answer(prompt: Ints, tokens: int) -> list[int]:
        out = stock.generate(
            torch.from_numpy(prompt)[None],
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            eos_token_id=None,
            pad_token_id=0,
        )
        return list(out[0, len(prompt) :].tolist())

    return answer


def prompts_of(lengths: list[int], seed: int = 0, vocab_size: int = TINY.vocab_size) -> list[Ints]:
    generator = np.random.default_rng(seed)
    return [generator.integers(vocab_size, size=length) for length in lengths]


def trace_of(prompt_tokens: list[int], output_tokens: list[int]) -> Trace:
    """All requests at time 0."""
    rows = len(prompt_tokens)
    prompt, output = np.array(prompt_tokens, np.int64), np.array(output_tokens, np.int64)
    return Trace("test", np.zeros(rows, np.int64), prompt, output, np.arange(rows))


class Passes:
    """Every call of a model while in a ``with`` block: what went in, what came out."""

    def __init__(self, model: Any) -> None:
        self.ids: list[torch.Tensor] = []
        self.masks: list[torch.Tensor] = []
        self.positions: list[torch.Tensor] = []
        self.filled: list[int] = []
        self.capacity: list[int] = []
        self.hidden: list[torch.Tensor] = []
        self.head_shapes: list[tuple[int, ...]] = []
        self._model = model

    def __enter__(self) -> "Passes":
        self._hooks = [
            self._model.model.register_forward_pre_hook(self._before),
            self._model.model.register_forward_hook(self._after),
            self._model.lm_head.register_forward_hook(
                lambda _, __, logits: self.head_shapes.append(tuple(logits.shape))
            ),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _before(self, _: Any, arguments: tuple[Any, ...]) -> None:
        ids, mask, positions, slab = arguments
        self.ids.append(ids.clone())
        self.masks.append(mask.clone())
        self.positions.append(positions.clone())
        self.filled.append(slab.length)
        self.capacity.append(slab.capacity)

    def _after(self, _: Any, __: Any, output: Any) -> None:
        self.hidden.append(output[0].clone())
