"""A full disk, while each kind of file is written: a clear error, and nothing left behind."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from tests.conftest import WriteModel
from tests.repository.optimize.small_specs import LINEAR, TORCH
from tests.rooms import no_room
from tritonkit.disk import is_of_writing, refused_by_system, try_writing, unwritable, write_whole
from tritonkit.errors import BuildError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.optimize import evaluate
from tritonkit.repository.optimize.timing import VariantTiming
from tritonkit.repository.optimize.variants import FORMS, Form

# A file may not grow past the limit, which is how a full disk looks to a writer: the call fails.
# Instead of minutes of compiling, torch writes a package of zeros.
LIMITED = """
import json, resource, signal, sys
from pathlib import Path
import torch, torch._inductor
from tritonkit.repository.export import BuildCache
from tritonkit.repository.optimize import evaluate
from tritonkit.repository.modelspec import load

def pack(program, *, package_path, inductor_configs):
    torch.save(torch.zeros(5000), package_path)

root, variant = Path(sys.argv[1]), sys.argv[2]
spec, cache = load(root / "models" / "net", root), BuildCache(root / "cache")
evaluate(spec, ["onnx-fp32"], cache)
torch._inductor.aoti_compile_and_package = pack
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
(result,) = evaluate(spec, [variant], cache)
print("RESULT" + json.dumps(result.problem.to_dict()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["torchscript", "torch-export", "torch-compile", "openvino-fp32"])
def test_a_full_disk_is_a_clear_error(write_model: WriteModel, root: Path, variant: str) -> None:
    """torch's own writers end the process, OpenVINO's throws an iostream error: neither is seen."""
    write_model(TORCH, network__py=LINEAR)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(root), variant],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CXX": sys.executable},
    )
    assert done.returncode == 0, done.stderr
    problem = json.loads(done.stdout.rpartition("RESULT")[2])
    assert problem["where"] == str(root / "cache" / "net")
    assert problem["found"] == "it cannot be written: File too large"
    assert "free space" in problem["do"]
    left = {path.name.rpartition("-")[0] for path in (root / "cache" / "net").iterdir()}
    assert left == {"onnx-fp32"}


def test_an_older_file_stays_where_the_new_one_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older file stays, without an unfinished one next to it."""
    file = tmp_path / "weights.pt"
    write_whole(file, b"old")
    monkeypatch.setattr(Path, "write_bytes", fill)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["weights.pt"]
    assert file.read_bytes() == b"old"


def test_a_folder_that_takes_files_is_left_as_it_was(tmp_path: Path) -> None:
    """One that does not is named."""
    try_writing(tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(BuildError, match="cannot be written: No such file"):
        try_writing(tmp_path, tmp_path / "gone")


def test_a_library_that_does_not_load_later_is_no_full_disk(
    write_model: WriteModel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dlopen's failure is an OSError, too."""

    def make(job: object, folder: Path) -> tuple[str, ...]:
        raise OSError("libtbb.so.12: cannot open shared object file")

    monkeypatch.setitem(FORMS, "stumbling", Form(make, "onnxruntime"))
    spec = write_model(TORCH, network__py=LINEAR)
    _, bad = evaluate(spec, ["onnx-fp32", "stumbling"], BuildCache(root / "cache"))
    assert bad.problem is not None
    assert bad.problem.found.startswith("it cannot be made: OSError: libtbb.so.12")


def test_figures_that_cannot_be_recorded_are_still_shown(
    write_model: WriteModel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The artifact is in the cache by then; the times are measured again next time."""
    spec, cache = write_model(TORCH, network__py=LINEAR), BuildCache(root / "cache")
    evaluate(spec, ["onnx-fp32"], cache)
    monkeypatch.setattr(Path, "write_text", fill)
    (result,) = evaluate(spec, ["onnx-fp32"], cache, timed=True)
    assert isinstance(result.timing, VariantTiming)


def fill(file: Path, content: bytes | str) -> NoReturn:
    """Write a part, as on a disk that becomes full."""
    with file.open("wb") as stream:
        stream.write(b"par")
    raise OSError(errno.ENOSPC, "No space left on device")


def test_what_the_system_refuses_has_words() -> None:
    """Place, reason and remedy; an OSError that is none of the system's stays what it is."""
    error = refused_by_system(OSError(errno.EROFS, os.strerror(errno.EROFS), "/there"))
    assert error is not None
    assert (error.where, error.found) == ("/there", "Read-only file system")
    assert "mount it for writing" in error.todo
    assert error.exit_code == 1
    assert refused_by_system(OSError("libtbb.so.12: cannot open shared object file")) is None


def test_a_folder_that_was_copied_in_part_gives_its_first_file_s_reason(tmp_path: Path) -> None:
    """Not a list of all files."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("a", "b"):
        (source / name).write_bytes(b"content")
    with no_room(1), pytest.raises(shutil.Error) as caught:
        shutil.copytree(source, tmp_path / "copy")
    error = unwritable(tmp_path / "copy", caught.value)
    assert error.found == "it cannot be written: File too large"
    assert is_of_writing(caught.value)
