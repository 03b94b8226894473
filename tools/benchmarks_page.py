"""Write the tables of README.md, docs/benchmarks.md, docs/bench.md and docs/cookbook from bench/results/.

A test checks that they are current.

`python -m bench peers --models MODEL --json bench/results/peers-MODEL.json && python tools/benchmarks_page.py`; of
`families`, `loadgen`, `tune`, `plan`, `gateway`, `lambda`, `container` and `generate` the file is
bench/results/BENCH.json, or one for each of its models.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.families.table import table as families  # noqa: E402
from bench.pages import placed, ratios  # noqa: E402
from bench.peers.contenders import MODELS  # noqa: E402
from bench.peers.table import full, short  # noqa: E402

RESULTS = ROOT / "bench" / "results"
PAGES = {ROOT / "README.md": short, ROOT / "docs" / "benchmarks.md": full}


BENCHES = ("loadgen", "tune", "plan", "gateway", "lambda", "container", "generate")
"""Benches with a table each in docs/bench.md, once there is a result."""


def texts() -> dict[Path, str]:
    """Each page as it should be."""
    files = [RESULTS / f"peers-{model}.json" for model in MODELS]
    reports = [json.loads(file.read_text()) for file in files if file.is_file()]
    pages = {page: placed(page.read_text(), table(reports), "peers") for page, table in PAGES.items()}
    page = ROOT / "docs" / "bench.md"
    pages[page] = page.read_text()
    for bench in BENCHES:
        results = [json.loads(file.read_text()) for file in sorted(RESULTS.glob(f"{bench}*.json"))]
        if results:
            pages[page] = placed(pages[page], ratios(results), bench)
    rows = RESULTS / "families.json"
    if rows.is_file():
        page = ROOT / "docs" / "cookbook" / "README.md"
        report = json.loads(rows.read_text())
        pages[page] = placed(page.read_text(), "\n".join(families(report["families"], absolute=False)), "families")
    return pages


if __name__ == "__main__":
    for page, text in texts().items():
        page.write_text(text)
