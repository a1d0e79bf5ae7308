"""ShareGPT-style JSON: a list of conversations. As in vLLM's benchmark, a request is a conversation's first turn,
its answer the second; conversations with fewer turns, or an empty one, are no request and are counted.
"""

from collections import Counter
from typing import Any

from traces.layout import Columns, Layout


def _turns(document: Any) -> Columns | None:
    if not isinstance(document, list) or not all(isinstance(entry, dict) for entry in document[:1]):
        return None
    if not document or not isinstance(_conversation(document[0]), list):
        return None
    prompts: list[str] = []
    answers: list[str] = []
    left_out: Counter[str] = Counter()
    for entry in document:
        texts: list[Any] = [
            turn.get("value") for turn in _conversation(entry) or [] if isinstance(turn, dict)
        ]
        if len(texts) < 2:
            left_out["fewer than two turns"] += 1
        elif not all(isinstance(text, str) and text for text in texts[:2]):
            left_out["empty turn"] += 1
        else:
            prompts.append(texts[0])
            answers.append(texts[1])
    return {"prompt": prompts, "answer": answers}, dict(left_out)


def _conversation(entry: Any) -> Any:
    return entry.get("conversations", entry.get("conversation")) if isinstance(entry, dict) else None


LAYOUTS = (Layout(("json",), "prompt", "answer", text=("prompt", "answer"), document=_turns),)
