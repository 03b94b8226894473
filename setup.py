"""The wheel carries the top-level folders that a project outside of a clone needs as data of the package.

All else is in pyproject.toml. `tritonkit.resources` finds what is written here. What runs inside tritonserver is
compiled into the wheel, which is then one for this kind of machine; TRITONKIT_NATIVE says whether:

    auto      (the default) where this machine has compilers and a glibc that the server runs with
    require   or there is no wheel; without a compiler, or with one for a newer glibc, `ziglang` is installed by pip
    no        a wheel for any machine, without them
"""

import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path
from types import ModuleType

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
CARRIED = (
    "deploy/alertmanager",
    "deploy/collector",
    "deploy/docker",
    "deploy/grafana",
    "deploy/lambda",
    "deploy/prometheus",
    "docker-compose.yml",
    "docker-compose.direct.yml",
    "loadtest",
    "python_backends",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
NATIVE = Path("python_backends") / "native"
# Keys and wheels of this machine, and what `tritonkit manifests` computes for the models of the clone.
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "admin-key", "*.whl", "resources.yml", "*.so", "prebuilt")


class BuildWithData(build_py):
    """Copies the carried folders; an editable install uses those of the clone."""

    def run(self) -> None:
        """Build the package, then add its data."""
        super().run()
        if self.editable_mode:
            return
        data = Path(self.build_lib) / "tritonkit" / "_data"
        shutil.rmtree(data, ignore_errors=True)  # of an earlier build
        for name in CARRIED:
            source, target = ROOT / name, data / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=_LEFT_OUT)
            elif source.is_file():
                shutil.copyfile(source, target)
        self.distribution.native_glibc = _prebuild(data / NATIVE / "prebuilt")


class TaggedWheel(bdist_wheel):
    """For any Python 3, and for machines that run what was compiled into it."""

    def get_tag(self) -> tuple[str, str, str]:
        """Python, ABI and platform."""
        glibc = getattr(self.distribution, "native_glibc", None)
        if glibc is None:
            return super().get_tag()
        return "py3", "none", f"manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}"


def _prebuild(folder: Path) -> tuple[int, int] | None:
    """Compile into a folder of the wheel; the oldest glibc that runs it, None where nothing is compiled."""
    wanted = os.environ.get("TRITONKIT_NATIVE", "auto")
    if wanted not in ("auto", "require", "no"):
        raise SystemExit(f"TRITONKIT_NATIVE={wanted}: it is auto, require or no")
    script = ROOT / NATIVE / "build.py"
    if wanted == "no" or not script.is_file():
        return None
    native = _module(script)
    # pip would refuse the wheel that it has just built on a machine with an older one.
    if wanted == "auto" and native.this_glibc() < native.OLDEST_GLIBC:
        return None
    try:
        glibc: tuple[int, int] = native.prebuild(folder / platform.machine(), download=wanted == "require")
    except native.BuildError as error:
        if wanted == "require":
            raise SystemExit(f"the native backends cannot be compiled: {error}") from error
        sys.stderr.write(f"without native backends, a wheel for any machine: {error}\n")
        shutil.rmtree(folder, ignore_errors=True)
        return None
    native.pack(folder / platform.machine())
    return glibc


def _module(script: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("native_build", script)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their annotations up there
    spec.loader.exec_module(module)
    return module


setup(cmdclass={"build_py": BuildWithData, "bdist_wheel": TaggedWheel})
