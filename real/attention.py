"""Grouped-query attention as the engine runs it, the same on every transformers and torch version.

The stock path of older versions copies keys and values once per query head in every decode step, and newer
ones choose the kernel by what the mask holds. This one always goes through a mask, and a decode step never
copies the cache: its query heads are laid beside their shared key-value head instead.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

ATTENTION = "static_batching_gqa"
"""Name under which transformers finds :func:`attend`."""


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float,
    **unused: Any,
) -> tuple[Tensor, None]:
    """Attention of ``query`` [B, H, Q, D] over ``key`` and ``value`` [B, Hkv, L, D]; gives [B, Q, H, D].

    ``attention_mask`` is boolean, [B, 1, Q, L], True where a query may look. Query head h uses key-value head
    h // (H / Hkv).
    """
    rows, heads, queries, head_dim = query.shape
    kv_heads = key.shape[1]
    group = heads // kv_heads
    if queries == 1:
        # [B, H, 1, D] -> [B, Hkv, group, D]: the heads of a group become queries of their key-value head.
        query = query.reshape(rows, kv_heads, group, head_dim)
    elif group > 1:
        # Once per batch, so the copy is cheap; the kernels that take a mask do not take grouped heads.
        key = key.repeat_interleave(group, dim=1)
        value = value.repeat_interleave(group, dim=1)
    mixed = scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=scaling)
    return mixed.reshape(rows, heads, queries, head_dim).transpose(1, 2), None


def pinned_kernels(device: torch.device) -> AbstractContextManager[None]:
    """On CUDA, hold attention to kernels that take a mask and do not plan anew for each context length."""
    if device.type != "cuda":
        return nullcontext()
    kernels: AbstractContextManager[None] = sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
    return kernels


AttentionInterface.register(ATTENTION, attend)
