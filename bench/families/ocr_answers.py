"""Answers of RapidOCR: run in a process that has it on its path."""

from __future__ import annotations

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    from rapidocr_onnxruntime import RapidOCR

    engine = RapidOCR()
    answers = []
    for path in sys.argv[1:]:
        lines, _ = engine(Path(path).read_bytes())
        answers.append(
            ([text.strip() for _, text, _ in lines or ()], [float(score) for *_, score in lines or ()]),
        )
    print(json.dumps(answers))
