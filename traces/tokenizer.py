"""A tokenizer by name, imported only where a file holds text."""

import importlib
import logging
from functools import cache
from pathlib import Path
from typing import Any

from traces.errors import InputError
from traces.read import Cut


@cache
def tokenizer(name: str) -> Cut:
    """The tokenizer of a ``tokenizer.json`` file, or of a model's folder or hub name (by ``transformers``).

    Nothing is added to a text: no template, no special tokens.

    Raises:
        InputError: the library is not installed, or it knows no such tokenizer.
    """
    if name.endswith(".json"):
        if not Path(name).is_file():
            raise InputError(f"--tokenizer {name}: no such file")
        try:
            made = _library("tokenizers").Tokenizer.from_file(name)
        except InputError:
            raise
        except Exception as error:  # the library raises bare exceptions
            raise InputError(f"--tokenizer {name}: {str(error)[:200]}") from None
        return lambda texts: [part.ids for part in made.encode_batch(texts, add_special_tokens=False)]
    transformers = _library("transformers")
    # Retries of a name that cannot be fetched are noise around the one line that says so.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        model = transformers.AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"--tokenizer {name}: {str(error).splitlines()[0][:200]}") from None
    return lambda texts: [list(ids) for ids in model(texts, add_special_tokens=False)["input_ids"]]


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(
            f"--tokenizer needs the package {name}; install this project with the extra 'real'"
        ) from None
