"""OpenVINO GenAI in process: `python -m bench.generation_engine FOLDER CONFIG`, a line of JSON out for each line in.

Runs under the server environment's Python, with the pipeline as the backend `llm` makes it of a model's configuration,
given as JSON. In: `{"prompts": [[token, ...], ...], "lengths": [tokens, ...]}`; out: `{"first_s", "done_s"}`, for each
prompt the seconds until its first token and its last. All prompts arrive together.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

_BACKENDS = Path(__file__).resolve().parent.parent / "python_backends" / "backends"
sys.path[:0] = [str(_BACKENDS), str(_BACKENDS / "llm")]


def main() -> None:
    """Answer until there are no more lines."""
    from llm_config import read_settings
    from llm_engine import pipeline_maker

    folder = Path(sys.argv[1])
    settings = read_settings(json.loads(sys.argv[2]), folder)
    pipeline = pipeline_maker(settings, str(folder))()
    print(json.dumps({"threads": settings.threads}), flush=True)
    for line in sys.stdin:
        load = json.loads(line)
        print(json.dumps(run(pipeline, load["prompts"], load["lengths"])), flush=True)


def run(pipeline: Any, prompts: list[list[int]], lengths: list[int]) -> dict[str, list[float]]:
    """Generate a number of tokens for each prompt, likeliest first, reading each token as soon as it is there."""
    import numpy as np
    from openvino import Tensor
    from openvino_genai import GenerationConfig

    started = time.perf_counter()
    handles = []
    for number, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        config = GenerationConfig()
        config.max_new_tokens, config.ignore_eos = length, True
        config.eos_token_id, config.stop_token_ids = 0, {0}
        handles.append(pipeline.add_request(number, Tensor(np.array([prompt], np.int64)), config))
    counts = [0] * len(handles)
    first, done = [0.0] * len(handles), [0.0] * len(handles)
    open_ = set(range(len(handles)))
    while open_:
        pipeline.step()
        now = time.perf_counter() - started
        for k in sorted(open_):
            while handles[k].can_read():
                for output in handles[k].read().values():
                    first[k] = first[k] or now
                    counts[k] += len(output.generated_ids)
            if counts[k] == lengths[k]:
                done[k] = now
                open_.discard(k)
    return {"first_s": first, "done_s": done}


if __name__ == "__main__":
    main()
