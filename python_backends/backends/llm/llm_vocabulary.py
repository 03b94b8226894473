"""A tokenizer for the engine that has a vocabulary and nothing else.

Texts and tokens are turned into each other outside the engine, which knows tokens by number. To hold an answer to a
grammar it needs their texts, and reads them from the inputs of one node of a detokenizer's graph.
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def width_of(network: Path) -> int | None:
    """Logits for each token that a network's file computes; None if it leaves that open."""
    import openvino as ov

    size = ov.Core().read_model(network).output("logits").get_partial_shape()[-1]
    return int(size.get_length()) if size.is_static else None


def engine_tokenizer(pieces: Sequence[bytes], end: int) -> Any:
    """OpenVINO GenAI's tokenizer with this vocabulary.

    Args:
        pieces: each token's bytes; none for a token that no grammar may use.
        end: a token that ends an answer.
    """
    import numpy as np
    import openvino as ov
    from openvino import opset15 as op
    from openvino_genai import Tokenizer

    # The nodes of OpenVINO's tokenizers, which openvino-genai brings, have no other door.
    from openvino_tokenizers import _get_factory

    numbers = op.parameter([-1, -1], np.int64)
    ends = np.array([*accumulate(map(len, pieces))], np.int32)
    begins = np.concatenate([np.zeros(1, np.int32), ends[:-1]])
    letters = np.frombuffer(b"".join(pieces), np.uint8)
    vocabulary = [op.constant(values).output(0) for values in (begins, ends, letters)]
    create = _get_factory().create
    *ragged, texts = create("VocabDecoder", [op.convert(numbers, "i32").output(0), *vocabulary]).outputs()
    joined = create("FuzeRagged", ragged).outputs()
    graph = ov.Model([op.result(op.string_tensor_pack(*joined, texts))], [numbers], "vocabulary")
    graph.set_rt_info(end, "eos_token_id")
    with TemporaryDirectory(prefix="tritonkit-vocabulary-") as folder:
        ov.save_model(graph, Path(folder) / "openvino_detokenizer.xml", compress_to_fp16=False)
        return Tokenizer(folder)
