"""From a sentence to the row of token ids that an encoder takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from labkit.engine import Place
from labkit.errors import SettingError, require
from labkit.models.plain import fresh

__all__ = ["LENGTHS", "PrepareSentence"]

LENGTHS = (16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class PrepareSentence:
    """Tokenise, cut off at the last of `lengths`, and pad with 0 up to the next of `lengths`.

    A payload is a `str`; an empty one gives the two tokens that frame every sentence. The row is int64 [L]: few
    different lengths, so that rows of equal length can share a batch, and no row more than twice as long as needed
    (from 16 tokens up). Tokens such as `[PAD]` written out in the text count as text.

    The tokenizer is only read after it was set up, so any number of threads may call. Raises `SettingError` for what
    is not a string.
    """

    tokenizer: Tokenizer
    lengths: tuple[int, ...] = LENGTHS

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in zip(self.lengths, self.lengths[1:], strict=False))
        require(
            bool(self.lengths) and rising and self.lengths[0] >= 2,
            f"lengths are {self.lengths}",
            "Give rising numbers of tokens, the first at least 2.",
        )
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.lengths[-1])
        self.tokenizer.encode_special_tokens = True  # a text cannot smuggle in padding, which would be masked

    @classmethod
    def from_file(cls, path: Path, lengths: tuple[int, ...] = LENGTHS) -> PrepareSentence:
        """Read a Hugging Face `tokenizer.json`; id 0 must be its padding, because networks read the mask from it.

        Raises `SettingError` when it is another token, or when the file is not a tokenizer.
        """
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises plain Exception
            raise SettingError(f"{path} is not a tokenizer ({error})", "Give a Hugging Face tokenizer.json.") from error
        first = tokenizer.id_to_token(0)
        require(
            first == "[PAD]",
            f"Token 0 of {path} is {first!r}",
            "Only tokenizers whose token 0 is [PAD] work here: the mask is read from the ids.",
        )
        return cls(tokenizer, lengths)

    def __call__(self, payload: Any) -> Tensor:
        """Return the row as a new tensor."""
        return self.into(payload, fresh)

    def into(self, payload: Any, place: Place) -> Tensor:
        """Write the row into the tensor that `place` gives, and return that tensor."""
        if not isinstance(payload, str):
            raise SettingError(f"The payload is a {type(payload).__name__}, which is no text", "Give a str.")
        ids = self.tokenizer.encode(payload).ids
        length = next(length for length in self.lengths if length >= len(ids))
        row = place((length,), torch.int64, len(ids))
        target = row.numpy()
        target[: len(ids)] = np.asarray(ids, np.int64)
        target[len(ids) :] = 0
        return row
