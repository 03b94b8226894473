"""The native backends under a sanitizer: `TRITONKIT_SANITIZE=address,undefined` (or `thread`) before pytest.

The libraries are compiled for it, its runtime is loaded into the real tritonserver before all else, and a test fails
where the server's log holds a report. The server and the engines are not compiled for it: what is watched is memory
that the backends touch or hand out, and races between their own functions.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

SANITIZE = os.environ.get("TRITONKIT_SANITIZE", "")
"""The value of `build.py --sanitize`; empty if there is none."""

RUNTIMES = {"address,undefined": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
REPORT = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:")
OURS = re.compile(r"libtriton_(onnxruntime|openvino|python)|tritonkit::|native/(backend|steps)")


def _runtime(name: str) -> str:
    ran = subprocess.run(
        ["c++", f"-print-file-name={name}"],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    )
    return str(Path(ran.stdout.strip()).resolve())


def sanitizer_variables(preloaded: Path | None = None) -> dict[str, str]:
    """The variables that tritonserver needs; empty without a sanitizer.

    Args:
        preloaded: a library to load after the sanitizer's.
    """
    if not SANITIZE:
        return {}
    return {
        "LD_PRELOAD": " ".join([*map(_runtime, RUNTIMES[SANITIZE]), *([str(preloaded)] if preloaded else [])]),
        # The end is tritonserver's own: whatever it and the engines keep until then is none of ours.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:new_delete_type_mismatch=0",
        # oneTBB of OpenVINO loads its parts with RTLD_DEEPBIND else, where AddressSanitizer ends the process.
        "TBB_ENABLE_SANITIZERS": "1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1:report_signal_unsafe=0:halt_on_error=0",
    }


def hangs_in_exit_handlers(log: Path) -> bool:
    """Whether a server that does not end has unloaded all models, under a sanitizer.

    Then p11-kit, a library that Triton's wheel brings, may wait in its exit handler for glibc's lock of locales, which
    nothing holds any more. Without a sanitizer that was never seen.
    """
    unloaded = "Found 0 live models and 0 in-flight" in log.read_text(errors="replace")
    return bool(SANITIZE) and unloaded


def sanitizer_reports(log: Path) -> list[str]:
    """The reports in a server's log that have to do with the backends, each with its stack."""
    if not SANITIZE:
        return []
    text = log.read_text(errors="replace")
    starts = [match.start() for match in REPORT.finditer(text)]
    parts = [text[start : start + 4000] for start in starts]
    return [part for part in parts if OURS.search(part)]
