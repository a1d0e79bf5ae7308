"""In float32 each row of a padded batch gives the very tokens it gives alone (law 9), and what is computed."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import real.engine
from real.engine import ENGINES, Engine
from real.weights import random_model
from sim.models import ModelShape
from tests.real.conftest import CPU, STD, TINY, Answer, Passes, prompts_of, tiny_model
from traces.errors import InputError

BATCHED = ("padded", "rowwise")
TEXTBOOK = [10, 30, 5, 20]


@pytest.mark.parametrize("engine", BATCHED)
@pytest.mark.parametrize(
    "lengths", [[3, 40], TEXTBOOK, [1], [1, 1, 1], [1, 64], [17, 17], [40, 3, 25, 1, 33, 8, 40, 12]], ids=str
)
def test_each_row_gives_the_tokens_that_generate_gives_alone(
    model: Any, alone: Answer, engine: str, lengths: list[int]
) -> None:
    prompts = prompts_of(lengths)
    tokens = Engine(model, engine).run(prompts, 12).tokens
    assert tokens.tolist() == [alone(prompt, 12) for prompt in prompts]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 48), min_size=1, max_size=6),
    st.integers(1, 10),
    st.integers(0, 2**32 - 1),
    st.sampled_from(BATCHED),
)
def test_rows_of_random_batches_equal_their_rows_alone(
    lengths: list[int], output: int, seed: int, engine: str
) -> None:
    model = tiny_model()
    prompts = prompts_of(lengths, seed)
    serial = Engine(model, "serial")
    tokens = Engine(model, engine).run(prompts, output).tokens
    assert tokens.tolist() == [serial.run([prompt], output).tokens[0].tolist() for prompt in prompts]


def test_the_tiny_model_is_a_test_at_all(model: Any, alone: Answer) -> None:
    """Its answers change with the first prompt token, and hold many different tokens."""
    for seed in range(6):
        (prompt,) = prompts_of([20], seed)
        changed = prompt.copy()
        changed[0] = (changed[0] + 1) % TINY.vocab_size
        assert alone(prompt, 12) != alone(changed, 12)
        assert len(set(alone(prompt, 12))) > 5


@pytest.mark.parametrize("name", ["prefill_mask", "decode_mask"])
def test_without_either_mask_the_tokens_are_wrong(
    model: Any, alone: Answer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mask = getattr(real.engine, name)
    monkeypatch.setattr(real.engine, name, lambda *arguments: torch.ones_like(mask(*arguments)))
    prompts = prompts_of([3, 40])
    tokens = Engine(model).run(prompts, 12).tokens
    assert tokens[0].tolist() != alone(prompts[0], 12)


@pytest.mark.parametrize("engine", BATCHED)
def test_pad_id_order_and_other_rows_change_nothing(model: Any, engine: str) -> None:
    prompts = prompts_of(TEXTBOOK)
    tokens = Engine(model, engine).run(prompts, 8).tokens
    for pad_id in (1, 300, TINY.vocab_size - 1):
        assert np.array_equal(Engine(model, engine, pad_id).run(prompts, 8).tokens, tokens)
    order = [2, 0, 3, 1]
    permuted = Engine(model, engine).run([prompts[i] for i in order], 8).tokens
    assert np.array_equal(permuted, tokens[order])
    others = [prompts[0], *prompts_of(TEXTBOOK, seed=9)[1:]]
    assert np.array_equal(Engine(model, engine).run(others, 8).tokens[0], tokens[0])


def test_the_same_batch_twice_is_bitwise_the_same(model: Any) -> None:
    engine = Engine(model)
    with Passes(model) as passes:
        first = engine.run(prompts_of(TEXTBOOK), 5).tokens
        # A larger batch in between leaves its keys in the memory that the third one reuses.
        engine.run(prompts_of([50] * 6, seed=3), 9)
        third = engine.run(prompts_of(TEXTBOOK), 5).tokens
    assert np.array_equal(first, third)
    assert all(torch.equal(a, b) for a, b in zip(passes.hidden[:5], passes.hidden[-5:], strict=True))


def test_a_padded_batch_is_one_prefill_and_n_minus_1_decode_steps(model: Any) -> None:
    prompts = prompts_of(TEXTBOOK)
    with Passes(model) as passes:
        tokens = Engine(model).run(prompts, 20).tokens
    assert [tuple(ids.shape) for ids in passes.ids] == [(4, 30)] + [(4, 1)] * 19
    assert passes.filled == [0, *range(30, 49)]
    assert passes.capacity == [30 + 20 - 1] * 20  # the last token's keys are never written
    assert [mask.shape[-1] for mask in passes.masks] == [30, *range(31, 50)]
    assert passes.head_shapes == [(4, TINY.vocab_size)] * 20  # never [4, 30, vocabulary]
    assert tokens.shape == (4, 20)
    # Finished or not, every row is fed its own newest token.
    fed = torch.cat(passes.ids[1:], dim=1)
    assert np.array_equal(fed.numpy(), tokens[:, :-1])


def test_rowwise_prefills_each_padded_row_and_decodes_together(model: Any) -> None:
    with Passes(model) as passes:
        Engine(model, "rowwise").run(prompts_of(TEXTBOOK), 3)
    assert [tuple(ids.shape) for ids in passes.ids] == [(1, 30)] * 4 + [(4, 1)] * 2
    assert passes.filled == [0] * 4 + [30, 31]


def test_positions_count_from_each_rows_own_first_token(model: Any) -> None:
    """Rotary positions are relative, so no token would tell."""
    with Passes(model) as passes:
        Engine(model).run(prompts_of([2, 4]), 3)
    assert [p.tolist() for p in passes.positions] == [
        [[0, 0, 0, 1], [0, 1, 2, 3]],
        [[2], [4]],
        [[3], [5]],
    ]


def test_the_mask_is_always_there_and_boolean(model: Any) -> None:
    """Without padding too: what a batch holds must not choose its kernel."""
    with Passes(model) as passes:
        Engine(model).run(prompts_of([4, 4]), 3)
    assert all(mask.dtype == torch.bool and mask.ndim == 4 for mask in passes.masks)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fully_padded_positions_give_no_nan(dtype: torch.dtype) -> None:
    model = random_model(TINY, CPU, dtype, 0, STD)
    with Passes(model) as passes:
        Engine(model).run(prompts_of([1, 50, 7]), 4)
    assert all(torch.isfinite(hidden).all() for hidden in passes.hidden)


def test_answers_of_one_token_take_no_decode_step(model: Any, alone: Answer) -> None:
    prompts = prompts_of([1, 9])
    with Passes(model) as passes:
        generated = Engine(model).run(prompts, 1)
    assert len(passes.ids) == 1
    assert generated.tokens.tolist() == [alone(prompt, 1) for prompt in prompts]
    assert len(generated.times.wall.step_ns) == 1


def test_experts_answer_the_same_in_a_batch() -> None:
    shape = ModelShape("tiny-moe", 64, 32, 2, 4, 2, 16, 512, False, experts=8, experts_per_token=2)
    model = random_model(shape, CPU, torch.float32, 0, STD)
    prompts = prompts_of([3, 12, 7])
    serial = Engine(model, "serial")
    tokens = Engine(model).run(prompts, 6).tokens
    assert tokens.tolist() == [serial.run([prompt], 6).tokens[0].tolist() for prompt in prompts]


def test_serial_takes_one_request_at_a_time(model: Any) -> None:
    with pytest.raises(InputError, match="serial takes batches of 1 row, not of 2"):
        Engine(model, "serial").run(prompts_of([3, 4]), 2)


def test_an_unknown_engine_is_refused_with_those_that_exist(model: Any) -> None:
    with pytest.raises(InputError, match=r"'ragged'; known are padded, rowwise or serial"):
        Engine(model, "ragged")


@pytest.mark.parametrize("prompts", [[], [np.empty(0, np.int64)], [*prompts_of([3]), np.empty(0, np.int64)]])
@pytest.mark.parametrize("engine", ["padded", "rowwise"])
def test_an_empty_prompt_never_reaches_the_model(model: Any, engine: str, prompts: list[Any]) -> None:
    with Passes(model) as passes, pytest.raises(ValueError, match="at least one token"):
        Engine(model, engine).run(prompts, 2)
    assert not passes.ids


def test_no_answer_is_no_batch(model: Any) -> None:
    with pytest.raises(ValueError, match="at least one token, not 0"):
        Engine(model).run(prompts_of([3]), 0)


def test_every_engine_has_a_test_here() -> None:
    assert set(ENGINES) == {*BATCHED, "serial"}


def test_in_bfloat16_a_batch_moves_logits_by_rounding_only() -> None:
    """Tokens may differ there, by nature; a mask or position gone wrong moves logits by whole deviations."""
    model = random_model(TINY, CPU, torch.bfloat16, 0, STD)
    prompts = prompts_of([3, 40, 17, 1])
    logits = []
    for batch in (prompts, *([prompt] for prompt in prompts)):
        with Passes(model) as passes:
            Engine(model).run(batch, 1)
        logits.append(model.lm_head(passes.hidden[0][:, -1]).float())
    together, alone = logits[0], torch.cat(logits[1:])
    assert ((together - alone).abs().amax(dim=1) < 0.3 * alone.std(dim=1)).all()
    assert ((together - alone[[1, 0, 3, 2]]).abs().amax(dim=1) > alone.std(dim=1)).all()
