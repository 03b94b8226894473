"""The lines of Triton's log that are shown."""

from __future__ import annotations

from pathlib import Path

from tritonkit.serve.log import read_tail, relevant

FAILED_LOAD = r"""W1121 07:06:09.439042 7043 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory"
E1121 07:06:09.439161 7043 server.cc:241] "CudaDriverHelper has not been initialized."
I1121 07:06:09.444559 7043 model_lifecycle.cc:472] "loading: good:1"
I1121 07:06:09.444578 7043 model_lifecycle.cc:472] "loading: bad:1"
I1121 07:06:09.446416 7043 python_be.cc:2249] "TRITONBACKEND_ModelInstanceInitialize: bad_0 (CPU device 0)"
I1121 07:06:09.451113 7050 pb_stub.cc:366]  Failed to initialize Python stub: ModuleNotFoundError: No module named 'nosuch'

At:
  /repo/bad/1/model.py(1): <module>

I1121 07:06:09.867668 7043 model_lifecycle.cc:839] "successfully loaded 'good'"
E1121 07:06:10.215076 7043 backend_model.cc:692] "ERROR: Failed to create instance: ModuleNotFoundError: No module named 'nosuch'\n\nAt:\n  /repo/bad/1/model.py(1): <module>\n"
E1121 07:06:10.215164 7043 model_lifecycle.cc:642] "failed to load 'bad' version 1: Internal: ModuleNotFoundError: No module named 'nosuch'\n\nAt:\n  /repo/bad/1/model.py(1): <module>\n"
I1121 07:06:10.215180 7043 server.cc:674]
+-------+---------+-----------------------------------------------+
| Model | Version | Status                                        |
+-------+---------+-----------------------------------------------+
| bad   | 1       | UNAVAILABLE: Internal: ModuleNotFoundError    |
+-------+---------+-----------------------------------------------+
"""  # noqa: E501 (as Triton writes them)


def test_a_failed_load_shows_its_reason() -> None:
    """Errors and the traceback stay; tables, time stamps, other models and what every machine without
    a GPU says go."""
    shown = relevant(FAILED_LOAD, ["bad"])
    text = "\n".join(shown)
    assert "No module named 'nosuch'" in text
    assert "  /repo/bad/1/model.py(1): <module>" in shown
    for noise in ("CudaDriver", "pinned", "good", "|", "+--", "07:06", "\\n"):
        assert noise not in text


def test_a_repeated_line_is_shown_once() -> None:
    """One failure is logged by every layer it passes."""
    shown = relevant(FAILED_LOAD, ["bad"])
    assert len(shown) == len(set(shown))


def test_what_a_model_prints_of_its_error_is_shown() -> None:
    """A Python traceback without any of Triton's marks."""
    text = 'hello\nTraceback (most recent call last):\n  File "model.py", line 3\nValueError: no\nbye\n'
    assert relevant(text) == text.splitlines()[1:4]


def test_the_last_lines_count() -> None:
    """A long log is cut at its beginning."""
    text = "".join(f'E1121 07:06:09.1 7 a.cc:{n}] "wrong {n}"\n' for n in range(100))
    assert relevant(text, limit=2) == ["E a.cc:98] wrong 98", "E a.cc:99] wrong 99"]


def test_an_uneventful_log_shows_nothing() -> None:
    """Information about no model in question is left out."""
    assert relevant('I1121 07:06:09.1 7 a.cc:1] "successfully loaded"\n\n') == []


def test_reading_is_bounded(tmp_path: Path) -> None:
    """The last MiB of a log of any size, in any bytes; a missing one is empty."""
    log = tmp_path / "log"
    log.write_bytes(b"first" + b"\xff" * (2 << 20) + b"last")
    tail = read_tail(log)
    assert len(tail) == 1 << 20
    assert tail.endswith("last")
    assert read_tail(tmp_path / "none") == ""
