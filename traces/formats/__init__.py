"""The formats that are recognised, most particular first. A new one is one file and one line here."""

from traces.formats import (
    apex,
    azure,
    bailian,
    burstgpt,
    llmservingsim,
    mooncake,
    plain,
    servegen,
    sharegpt,
    splitwise,
    vidur,
    vllm,
)
from traces.layout import Layout

FORMATS: dict[str, tuple[Layout, ...]] = {
    "azure": azure.LAYOUTS,
    "burstgpt": burstgpt.LAYOUTS,
    "bailian": bailian.LAYOUTS,
    "mooncake": mooncake.LAYOUTS,
    "servegen": servegen.LAYOUTS,
    "vidur": vidur.LAYOUTS,
    "splitwise": splitwise.LAYOUTS,
    "llmservingsim": llmservingsim.LAYOUTS,
    "apex": apex.LAYOUTS,
    "vllm": vllm.LAYOUTS,
    "sharegpt": sharegpt.LAYOUTS,
    "plain": plain.LAYOUTS,
}
"""Layouts by the name that ``--format`` takes."""
