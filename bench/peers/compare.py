"""tritonkit and the servers that others use: the same networks, requests and cores, in turns."""

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
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.peers import traffic
from bench.peers.contenders import CONTENDERS, MODELS, Contender, Way, choices
from bench.peers.environment import environment
from bench.peers.measure import begin_rates, closed_loops, highest_rates, python_loops
from bench.peers.repository import model_folder, repository
from bench.peers.results import SHARED, Cells, Key, ratios, summary
from bench.peers.server import HERE, ROOT, Place, Running, lines_of, started
from bench.programs import output
from bench.report import Report
from bench.setting import chosen
from tritonkit.errors import TritonkitError, UsageError

if TYPE_CHECKING:
    from bench.setting import Setting

__all__ = ["run"]

HOME = ROOT / ".tritonkit" / "peers"
CORES = 2
"""Cores of the machine: as many as all compared servers get."""
CHOICE_S = 1.5
CHOICE_CALLERS = 32
PINNED = "server and load on a core each"


@dataclass(frozen=True)
class Arrangement:
    """The server's cores and the load's."""

    name: str
    server: Sequence[int]
    load: Sequence[int]


class Turn(NamedTuple):
    """One server with one model on its cores."""

    contender: Contender
    model: str
    arrangement: Arrangement

    @property
    def key(self) -> Key:
        """The name of its cells."""
        return self.arrangement.name, self.model, self.contender.name

    def __str__(self) -> str:
        return f"{self.contender.name}, {self.model}, {self.arrangement.name}"


def run(setting: Setting) -> Report:
    """Requests per second over FastAPI, LitServe, BentoML, mosec, MLServer, Ray Serve, PyTriton and Infinity."""
    names = chosen("--peers", setting.peers, CONTENDERS)
    models = chosen("--models", setting.models, MODELS)
    HOME.mkdir(parents=True, exist_ok=True)
    with _terminated_as_interrupt():
        serving = [
            name for name, contender in CONTENDERS.items() if name in names and set(models) & set(contender.models)
        ]
        plan = _Plan.made(setting, serving, models)
        plan.choose()
        plan.measure()
    return Report(
        "peers",
        f"requests/s side by side, on {CORES} cores; rates and latencies are of this machine and this run",
        ratios(plan.cells),
        {"peers": summary(plan.cells, setting.seconds)},
    )


@dataclass
class _Plan:
    """The servers to measure, and the results so far."""

    setting: Setting
    arrangements: Sequence[Arrangement]
    models: Sequence[str]
    bins: Mapping[str, Path]
    repositories: Mapping[tuple[str, int], Path]
    folders: Mapping[str, Path]
    expected: Mapping[str, traffic.Answer]
    cells: Cells

    @classmethod
    def made(cls, setting: Setting, names: Sequence[str], models: Sequence[str]) -> _Plan:
        """Make every environment and repository; report and leave out those that cannot be made."""
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
        for variant in ("onnx-fp32", "auto"):
            # All load the first; the second is the variant that the gate let through.
            served = CONTENDERS["tritonkit-best"].models if variant == "auto" else models
            needed = [model for model in models if model in served]
            if not needed or (variant == "auto" and "tritonkit-best" not in bins):
                continue
            try:
                for size in sorted({len(arrangement.server) for arrangement in arrangements}):
                    _say(f"building {', '.join(needed)}: {variant}, for {size} cores")
                    repositories[variant, size] = repository(HOME, variant, size, needed)
            except TritonkitError as error:
                if variant != "auto":
                    raise
                _say(f"tritonkit-best is left out: {error}")
                cells.absent["tritonkit-best"] = error.found
                del bins["tritonkit-best"]
        plain = repositories["onnx-fp32", len(arrangements[0].server)]
        folders = {model: model_folder(HOME, model, plain) for model in models}
        expected = {model: _wanted(setting.engine_python, model, folders[model]) for model in models}
        return cls(setting, arrangements, models, bins, repositories, folders, expected, cells)

    def choose(self) -> None:
        """Keep each peer's fastest settings, tried once."""
        for turn in self.turns(0):
            tried: list[tuple[float, dict[str, str]]] = []
            options = choices(turn.contender, len(turn.arrangement.server))
            if len(options) > 1:
                _say(f"trying {len(options)} settings: {turn}")
            for settings in options:
                if len(options) == 1:
                    tried.append((0.0, settings))
                else:
                    with self.guarded(str(turn)):
                        tried.append((self.rate(turn, settings), settings))
            if tried:
                _, best = max(tried, key=lambda pair: pair[0])
                lines = lines_of(turn.contender, turn.model)
                self.cells.settle(turn.key, best, lines, tried if len(tried) > 1 else [])

    def rate(self, turn: Turn, settings: Mapping[str, str]) -> float:
        """Requests per second with these settings, in the contender's first way."""
        way, cores = turn.contender.ways[0], turn.arrangement.load
        with started(turn.contender, self.place(turn), settings) as server:
            loops = closed_loops(server, way, turn.model, CHOICE_S, cores, (CHOICE_CALLERS,))
        per_s: float = loops[str(CHOICE_CALLERS)]["per_s"]
        return per_s

    def measure(self) -> None:
        """All rounds; an interrupt after the first whole round keeps what there is."""
        for number in range(self.setting.rounds):
            try:
                for turn in self.turns(number):
                    if self.cells.settled(turn.key):
                        _say(f"round {number + 1}: {turn}")
                        with self.guarded(str(turn)):
                            self.round(number, turn)
            except KeyboardInterrupt:
                if not number:
                    raise
                _say(f"interrupted: {number} whole rounds are reported")
                self.cells.cut(number)
                return

    def round(self, number: int, turn: Turn) -> None:
        """One server from its start to its end."""
        settings = self.cells.settings(turn.key)
        with started(turn.contender, self.place(turn), settings) as server:
            memory = [server.tree.memory_bytes()]
            for way in turn.contender.ways:
                if turn.model in way.models:
                    with self.guarded(f"{turn}, {way.name}"):
                        self.one_way(number, turn, way, server)
                        memory.append(server.tree.memory_bytes())
            self.cells.took(number, turn.key, server.ready_s, max(memory))

    def one_way(self, number: int, turn: Turn, way: Way, server: Running) -> None:
        """All loads of one protocol or client; Python clients and open loops on shared cores alone, and
        open loops, which are shown and not compared, in every second round."""
        seconds, cores = self.setting.seconds, turn.arrangement.load
        shared = turn.arrangement.name == SHARED
        if way.format:
            loops = closed_loops(server, way, turn.model, seconds, cores)
            rates: dict[str, Any] = {}
            if shared and way.open_loop and number % 2 == 0:
                former = self.cells.rates[turn.key][way.name].get(number - 2, {})
                begin = begin_rates(loops, former)
                rates = highest_rates(server, way, turn.model, seconds, cores, begin)
            self.cells.add(number, turn.key, way.name, loops, rates)
        elif shared:
            loops = python_loops(server, way, turn.model, seconds, cores)
            self.cells.add(number, turn.key, way.name, loops)

    def turns(self, number: int) -> Iterator[Turn]:
        """Contenders side by side for each model; the first changes from round to round.

        Pinned apart, which is shown and not compared, they run in every third round.
        """
        names = list(self.bins)
        for arrangement in self.arrangements[: 1 if number % 3 else None]:
            for model in self.models:
                for name in names if number % 2 == 0 else reversed(names):
                    if model in CONTENDERS[name].models:
                        yield Turn(CONTENDERS[name], model, arrangement)

    def place(self, turn: Turn) -> Place:
        """The server's place and its models."""
        cores, model = turn.arrangement.server, turn.model
        variant = turn.contender.variant or "onnx-fp32"
        return Place(
            model,
            cores,
            self.bins[turn.contender.name],
            HOME,
            self.folders[model],
            self.repositories[variant, len(cores)],
            self.expected[model],
        )

    @contextmanager
    def guarded(self, where: str) -> Iterator[None]:
        """A contender that fails is reported and kept out of this cell; the others go on."""
        try:
            yield
        except (TritonkitError, OSError, subprocess.SubprocessError) as error:
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
    """The folder of a contender's Python."""
    if contender.ours or contender.name == "ceiling":
        return Path(sys.executable).parent
    folder = HERE / contender.name
    return environment(contender.name, folder / "requirements.txt", HOME, setting.engine_python)


def _wanted(python: Path, model: str, folder: Path) -> traffic.Answer:
    """Times of the engine in process, by model, from the file that all servers load."""
    with tempfile.TemporaryDirectory() as scratch:
        item = Path(scratch) / "item"
        item.write_bytes(traffic.content(model))
        printed = output(python, "bench.peers.expected", model, str(folder), str(item))
    return traffic.expected(model, base64.b64decode(printed["answer"]))


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
