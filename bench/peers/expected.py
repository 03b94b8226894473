"""The right answer, by the engine in process: `python -m bench.peers.expected MODEL FOLDER ITEM`, JSON out.

Runs under the server environment's Python: what the peers' own code needs, and the standard library.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import json
from pathlib import Path


def main() -> None:
    """Print the answer's bytes as base64."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers.expected", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("folder", metavar="FOLDER", help="folder with model.onnx")
    parser.add_argument("item", type=Path, metavar="FILE", help="file with the item to send")
    options = parser.parse_args()
    file = Path(__file__).parent / "models" / options.model / "model.py"
    spec = importlib.util.spec_from_file_location("model", file)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{file}: not found")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    [answer] = module.Model(options.folder, 1)([options.item.read_bytes()])
    print(json.dumps({"answer": base64.b64encode(answer).decode()}))


if __name__ == "__main__":
    main()
