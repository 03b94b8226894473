"""tritonkit beside the servers that others use: the same networks, the same requests, the same cores, in turns."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from bench.peers import traffic
from bench.peers.contenders import CONTENDERS, MODELS, Contender, choices
from bench.peers.environment import environment
from bench.peers.measure import closed_loops, highest_rates, python_loops
from bench.peers.repository import model_folder, repository
from bench.peers.results import Cells, ratios, summary
from bench.peers.server import HERE, ROOT, Place, lines_of, started
from bench.programs import output
from bench.report import Report
from tritonkit.errors import TritonkitError, UsageError

if TYPE_CHECKING:
    from bench.setting import Setting

__all__ = ["run"]

HOME = ROOT / ".tritonkit" / "peers"
CORES = 2
"""Of the machine's: as many as all that is compared here gets."""
CHOICE_S = 1.5
CHOICE_CALLERS = 32
PINNED = "server and load on a core each"
SHARED = "server and load on the same cores"


@dataclass(frozen=True)
class Arrangement:
    """Which cores the server gets and which the load."""

    name: str
    server: Sequence[int]
    load: Sequence[int]


def run(setting: Setting) -> Report:
    """Requests per second over FastAPI, LitServe, BentoML, mosec, MLServer, Ray Serve, PyTriton and Infinity."""
    names = _chosen("--peers", setting.peers, CONTENDERS)
    models = _chosen("--models", setting.models, MODELS)
    HOME.mkdir(parents=True, exist_ok=True)
    with _terminated_as_interrupt():
        plan = _Plan.made(setting, [name for name in CONTENDERS if name in names], models)
        plan.choose()
        plan.measure()
    return Report(
        "peers",
        f"requests/s side by side, on {CORES} cores; rates and latencies are of this machine and this run",
        ratios(plan.cells),
        {"peers": summary(plan.cells, setting.rounds, setting.seconds)},
    )


@dataclass
class _Plan:
    """What is measured, and what was found so far."""

    setting: Setting
    arrangements: Sequence[Arrangement]
    models: Sequence[str]
    bins: Mapping[str, Path]
    repositories: Mapping[tuple[str, int], Path]
    folders: Mapping[str, Path]
    wanted: Mapping[str, traffic.Answer]
    cells: Cells

    @classmethod
    def made(cls, setting: Setting, names: Sequence[str], models: Sequence[str]) -> _Plan:
        """With every environment and repository; what cannot be had is said and left out."""
        arrangements = _arrangements()
        cells = Cells()
        bins = {}
        for name in names:
            try:
                bins[name] = _bin(CONTENDERS[name], setting)
            except TritonkitError as error:
                _say(f"{name} is left out: {error}")
                cells.absent[name] = error.found
        if not bins:
            raise UsageError("--peers", found="none of them can run here", todo="see above")
        repositories = {}
        sizes = {len(each.server) for each in arrangements}
        variants = {"onnx-fp32", *(CONTENDERS[name].variant for name in bins)} - {""}
        for variant in sorted(variants):
            # The form that peers load is always needed; the one that the gate chose, of those it is served of.
            needed = [
                m for m in models if variant != "auto" or m in CONTENDERS["tritonkit-best"].models
            ]
            for size in sorted(sizes) if needed else ():
                _say(f"building {', '.join(needed)}: {variant}, for {size} cores")
                repositories[variant, size] = repository(HOME, variant, size, needed)
        plain = repositories["onnx-fp32", len(arrangements[0].server)]
        folders = {model: model_folder(HOME, model, plain) for model in models}
        wanted = {model: _wanted(setting.engine_python, model, folders[model]) for model in models}
        return cls(setting, arrangements, models, bins, repositories, folders, wanted, cells)

    def choose(self) -> None:
        """Keep each peer's fastest settings, tried once."""
        for contender, model, arrangement in self.turns(0):
            tried: list[tuple[float, dict[str, str]]] = []
            options = choices(contender, len(arrangement.server))
            for settings in options:
                if len(options) == 1:
                    tried.append((0.0, settings))
                    break
                with self.guarded(contender, model, arrangement):
                    with started(
                        contender, self.place(contender, model, arrangement), settings
                    ) as server:
                        loop = closed_loops(
                            server,
                            contender.ways[0],
                            model,
                            CHOICE_S,
                            arrangement.load,
                            (CHOICE_CALLERS,),
                        )
                    tried.append((loop[str(CHOICE_CALLERS)]["per_s"], settings))
            if tried:
                best = max(tried, key=lambda pair: pair[0])[1]
                self.cells.settle(
                    arrangement.name, model, contender, best, lines_of(contender, model), tried
                )

    def measure(self) -> None:
        """All rounds; an interrupt after the first whole round keeps what there is."""
        for number in range(self.setting.rounds):
            try:
                for contender, model, arrangement in self.turns(number):
                    if self.cells.settled(arrangement.name, model, contender.name):
                        _say(f"round {number + 1}: {contender.name}, {model}, {arrangement.name}")
                        with self.guarded(contender, model, arrangement):
                            self.round(number, contender, model, arrangement)
            except KeyboardInterrupt:
                if not number:
                    raise
                _say(f"interrupted: {number} whole rounds are reported")
                self.cells.cut(number)
                return

    def round(
        self, number: int, contender: Contender, model: str, arrangement: Arrangement
    ) -> None:
        """One server from its start to its end."""
        seconds, cores = self.setting.seconds, arrangement.load
        settings = self.cells.settings(arrangement.name, model, contender.name)
        with started(contender, self.place(contender, model, arrangement), settings) as server:
            memory = [server.tree.memory_bytes()]
            for way in contender.ways:
                if model not in way.models:
                    continue
                if not way.format:
                    if arrangement.name == SHARED:
                        loops = python_loops(server, way, model, seconds, cores)
                        self.cells.add(
                            number, arrangement.name, model, contender.name, way.name, loops
                        )
                    continue
                loops = closed_loops(server, way, model, seconds, cores)
                memory.append(server.tree.memory_bytes())
                rates = {}
                if arrangement.name == SHARED and way.open_loop:
                    start = 0.5 * loops[str(CHOICE_CALLERS)]["per_s"]
                    rates = highest_rates(server, way, model, seconds, cores, start)
                self.cells.add(
                    number, arrangement.name, model, contender.name, way.name, loops, rates
                )
            self.cells.took(
                number, arrangement.name, model, contender.name, server.ready_s, max(memory)
            )

    def turns(self, number: int) -> Iterator[tuple[Contender, str, Arrangement]]:
        """Contenders side by side for each model; who is first changes from round to round."""
        names = list(self.bins)
        for arrangement in self.arrangements:
            for model in self.models:
                for name in names if number % 2 == 0 else reversed(names):
                    if model in CONTENDERS[name].models:
                        yield CONTENDERS[name], model, arrangement

    def place(self, contender: Contender, model: str, arrangement: Arrangement) -> Place:
        """Where it runs and what it loads."""
        variant = contender.variant or "onnx-fp32"
        return Place(
            model, arrangement.server, self.bins[contender.name], HOME, self.folders[model],
            self.repositories[variant, len(arrangement.server)], self.wanted[model],
        )  # fmt: skip

    @contextmanager
    def guarded(self, contender: Contender, model: str, arrangement: Arrangement) -> Iterator[None]:
        """A contender that fails is told and kept out of this cell; the others go on."""
        try:
            yield
        except (TritonkitError, OSError, subprocess.SubprocessError) as error:
            where = f"{contender.name}, {model}, {arrangement.name}"
            _say(f"{where}: {error}")
            self.cells.failed[where] = getattr(error, "found", str(error))


def _arrangements() -> list[Arrangement]:
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    shared = Arrangement(SHARED, cores, cores)
    if len(cores) < CORES:
        _say("one core: server and load cannot be pinned apart")
        return [shared]
    return [shared, Arrangement(PINNED, cores[:1], cores[1:])]


def _bin(contender: Contender, setting: Setting) -> Path:
    """The folder of its Python."""
    if contender.ours or contender.name == "ceiling":
        if contender.name == "ceiling":
            from bench.peers.server import ceiling

            ceiling()
        return Path(sys.executable).parent
    folder = HERE / contender.name
    return environment(contender.name, folder / "requirements.txt", HOME, setting.engine_python)


def _wanted(python: Path, model: str, folder: Path) -> traffic.Answer:
    """By the engine in process, from the file that all load."""
    with tempfile.TemporaryDirectory() as scratch:
        item = Path(scratch) / "item"
        item.write_bytes(traffic.content(model))
        found = output(python, "bench.peers.expected", model, str(folder), str(item))
    return traffic.expected(model, base64.b64decode(found["answer"]))


def _chosen(
    option: str, given: Sequence[str], known: Sequence[str] | Mapping[str, Any]
) -> list[str]:
    """What an option names, or all."""
    unknown = [name for name in given if name not in known]
    if unknown:
        raise UsageError(option, found=", ".join(unknown), wanted=f"some of {', '.join(known)}")
    return list(given or known)


@contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """SIGTERM ends the servers as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
