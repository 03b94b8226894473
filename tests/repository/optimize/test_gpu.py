"""Messages about GPUs on a machine without one, and the comparison of the GPU bench."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bench.__main__ import main
from bench.gpu.engines import compare
from tritonkit.repository.optimize.gpu import find_gpu


@pytest.mark.skipif(find_gpu() is not None, reason="there is a GPU: run python -m bench gpu")
def test_the_gpu_bench_says_in_one_line_that_there_is_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was measured, so the exit code reports no success."""
    assert main(["gpu"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert "the CUDA driver shows none" in line


def test_contenders_are_compared_with_the_first() -> None:
    """A faster one has a figure above 1, with its time; one that fails leaves the others measured."""

    def broken(batch: object) -> None:
        raise RuntimeError("no kernel")

    passed_s = [0.0]

    def takes(seconds: float) -> Callable[[object], None]:
        def run(batch: object) -> None:
            passed_s[0] += seconds

        return run

    contenders = {"slow": takes(0.004), "quick": takes(0.001), "broken": broken}
    (ratio,) = compare("net", contenders, {"x": np.zeros((8, 2))}, rounds=2, clock=lambda: passed_s[0])
    assert ratio.name == "net, batch 8: quick / slow"
    assert ratio.rounds == pytest.approx([4.0, 4.0])
    assert ratio.facts == {"ms": 1.0, "items/s": 8000}
