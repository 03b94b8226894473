"""Write the tables of README.md and docs/benchmarks.md from bench/results/peers.json. A test holds them current.

`python -m bench peers --json bench/results/peers.json && python tools/benchmarks_page.py`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.peers.table import full, placed, short  # noqa: E402

RESULTS = ROOT / "bench" / "results" / "peers.json"
PAGES = {ROOT / "README.md": short, ROOT / "docs" / "benchmarks.md": full}


def texts() -> dict[Path, str]:
    """Each page as it should be."""
    report = json.loads(RESULTS.read_text()) if RESULTS.is_file() else None
    return {page: placed(page.read_text(), table(report)) for page, table in PAGES.items()}


if __name__ == "__main__":
    for page, text in texts().items():
        page.write_text(text)
