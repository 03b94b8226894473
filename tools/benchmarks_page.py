"""Write the tables of README.md and docs/benchmarks.md from bench/results/peers-*.json. A test holds them current.

`python -m bench peers --models MODEL --json bench/results/peers-MODEL.json && python tools/benchmarks_page.py`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.peers.contenders import MODELS  # noqa: E402
from bench.peers.table import full, placed, short  # noqa: E402

RESULTS = ROOT / "bench" / "results"
PAGES = {ROOT / "README.md": short, ROOT / "docs" / "benchmarks.md": full}


def texts() -> dict[Path, str]:
    """Each page as it should be."""
    files = [RESULTS / f"peers-{model}.json" for model in MODELS]
    reports = [json.loads(file.read_text()) for file in files if file.is_file()]
    return {page: placed(page.read_text(), table(reports)) for page, table in PAGES.items()}


if __name__ == "__main__":
    for page, text in texts().items():
        page.write_text(text)
