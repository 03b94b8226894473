"""The cost of the gateway: calls through it compared with calls to a replica, and two replicas compared with one
server."""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bench.h2load import Body, Load, grpc_body, h2load
from bench.images import image_sizes
from bench.overload import overload
from bench.processor import cpu_s
from bench.programs import ROOT
from bench.report import Ratio, Report
from bench.setting import chosen
from tritonkit.client import TLS, Client
from tritonkit.client.wire.protos import schema
from tritonkit.errors import ClientError
from tritonkit.operate.certificates import make_certificates
from tritonkit.operate.keys import add_key
from tritonkit.operate.stack import Stack, StackSettings
from tritonkit.serve import serve
from tritonkit.serve.ports import check_free

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.setting import Setting

__all__ = ["run"]

T = TypeVar("T")

MODELS = ("digits", "sentences")
CALLERS = 32
CONNECTIONS = 4
ADDED_MS, TIMES = 0.6, 1.5
KEPT = 0.9
READY_S = 15.0
RATE_PER_S, RATE_S, RATE_OFF = 100.0, 10.0, 0.05
"""A key's rate, the seconds for which it is tried, and the deviation that passing requests may have."""


@dataclass(frozen=True)
class _Places:
    """A server with all cores, a replica, and a gateway in front of that replica and another one. `server_pid`: the
    server's process. `pids`: those of the gateway, then of the replicas.
    """

    server: str
    replica: str
    gateway: str
    authority: Path
    key: str
    slow_key: str
    ready_s: float
    server_pid: int
    pids: tuple[int, ...]


def run(setting: Setting) -> Report:
    """Latency and throughput through the gateway, with TLS and a key, over those without it."""
    setting.refuse_address()
    ratios: list[Ratio] = []
    with _started(setting) as places:
        name = f"`tritonkit up`, two replicas: time until it is ready / {READY_S:g} s"
        ratios.append(Ratio(name, [places.ready_s / READY_S], at_most=1.0))
        rates = [_rate(places) for _ in range(setting.rounds)]
        name = f"requests that pass / what a key of {RATE_PER_S:g}/s may send, sent as often as possible"
        ratios.append(Ratio(name, rates, at_most=1 + RATE_OFF, at_least=1 - RATE_OFF))
        for model in chosen("--models", setting.models, MODELS):
            ratios += _of(setting, places, model)
    ratios += overload(setting)
    sizes = image_sizes()
    return Report(
        "gateway",
        "through the gateway (TLS, key, audit log) over without it, from a compiled load generator on the same cores",
        ratios,
        more={"image_bytes": sizes},
        notes=[f"image {name}: {size / 1e6:.0f} MB" for name, size in sizes.items()],
    )


def _rate(places: _Places) -> float:
    """Admitted requests of a key with a rate limit over that rate times the seconds."""
    passed = refused = 0
    tls = TLS(ca=str(places.authority))
    with Client(f"grpcs://{places.gateway}", tls=tls, api_key=places.slow_key, retry=None, breaker=None) as client:
        began = time.monotonic()
        while time.monotonic() < began + RATE_S:
            if client.is_ready():
                passed += 1
            else:
                refused += 1
        taken_s = time.monotonic() - began
    if not refused:
        raise ClientError("the limited key", found="nothing was refused", wanted="more requests than its rate")
    return passed / (RATE_PER_S * taken_s)


def _of(setting: Setting, places: _Places, model: str) -> list[Ratio]:
    body = _request(places.server, model)
    through = replace(body, headers={**body.headers, "x-api-key": places.key})
    gateway = f"https://{places.gateway}"
    alone: list[tuple[Load, Load]] = []
    loaded: list[tuple[_Used, _Used]] = []
    for turn in range(setting.rounds):
        alone.append(
            _pair(
                turn,
                lambda: h2load(gateway, through, callers=1, seconds=setting.seconds / 2),
                lambda: h2load(places.replica, body, callers=1, seconds=setting.seconds / 2),
            )
        )
        loaded.append(
            _pair(
                turn,
                lambda: _many(gateway, through, setting.seconds, places.pids),
                lambda: _many(places.server, body, setting.seconds, [places.server_pid]),
            )
        )
    direct = sorted(direct.p50_ms for _, direct in alone)[len(alone) // 2]
    most_ms = max(ADDED_MS, (TIMES - 1) * direct)
    added = [ours.p50_ms - direct.p50_ms for ours, direct in alone]
    facts = {"p50 through, direct: ms": _medians([(a.p50_ms, b.p50_ms) for a, b in alone])}
    alone_name = f"{model}, one caller: added p50 / {most_ms:.2f} ms"
    loaded_name = f"{model}, {CALLERS} callers: answers/s with two replicas over one server"
    rates = {"answers/s through, direct": _medians([(a.load.per_s, b.load.per_s) for a, b in loaded])}
    used_name = f"{model}, {CALLERS} callers: processor time of gateway and replicas over the one server's, a call"
    used = [sum(a.used_us) / sum(b.used_us) for a, b in loaded]
    of_each = [(a.used_us[0], sum(a.used_us[1:]), sum(b.used_us)) for a, b in loaded]
    taken = {"us a call of gateway, replicas; server": _medians(of_each)}
    passed = [a.load.per_s / b.load.per_s for a, b in loaded]
    return [
        Ratio(alone_name, [ms / most_ms for ms in added], at_most=1.0, facts=facts),
        Ratio(loaded_name, passed, at_least=KEPT, facts=rates),
        Ratio(used_name, used, facts=taken),
    ]


@dataclass(frozen=True)
class _Used:
    """A load, and the processor time of each process behind it: microseconds a call."""

    load: Load
    used_us: Sequence[float]


def _many(address: str, body: Body, seconds: float, pids: Sequence[int]) -> _Used:
    before = [cpu_s(pid) for pid in pids]
    load = h2load(address, body, callers=CALLERS, seconds=seconds, connections=CONNECTIONS)
    used = [cpu_s(pid) - then for pid, then in zip(pids, before, strict=True)]
    return _Used(load, [1e6 * cpu_s / load.sent for cpu_s in used])


def _pair(turn: int, ours: Callable[[], T], direct: Callable[[], T]) -> tuple[T, T]:
    """Measure both, in an order that rotates."""
    if turn % 2:
        second = direct()
        return ours(), second
    return ours(), direct()


def _medians(pairs: Sequence[tuple[float, ...]]) -> list[float]:
    return [round(sorted(values)[len(values) // 2], 2) for values in zip(*pairs, strict=True)]


@contextmanager
def _started(setting: Setting) -> Iterator[_Places]:
    """One server, and a stack, of the same repository."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tritonkit-bench-")))
        (root / ".venv-server").symlink_to(ROOT / ".venv-server")
        folder = root / "deploy" / "gateway"
        make_certificates(folder / "tls", ["127.0.0.1"])
        (folder / "gateway.yaml").write_text(f"port: {check_free('127.0.0.1', 0)}\n")
        _, key = add_key(folder / "keys.json", "bench")
        _, slow_key = add_key(folder / "keys.json", "slow", rate_per_s=RATE_PER_S, burst=1)
        endpoint = stack.enter_context(serve(setting.repository, models=MODELS, root=root, grpc_port=0, metrics_port=0))
        began = time.monotonic()
        replicas = stack.enter_context(
            Stack(StackSettings(root, setting.repository, models=MODELS, replicas=2, gateway=folder))
        )
        ready_s = time.monotonic() - began
        watcher = threading.Thread(target=replicas.watch)
        watcher.start()
        stack.callback(watcher.join)
        stack.callback(replicas.ending.set)
        parts = {part.name: part for part in replicas.parts}
        pids = tuple(parts[name].pid for name in ("gateway", "replica-0", "replica-1"))
        yield _Places(
            endpoint.grpc,
            parts["replica-0"].address,
            replicas.address,
            folder / "tls" / "ca.crt",
            key,
            slow_key,
            ready_s,
            endpoint.pid,
            pids,
        )


def _request(address: str, model: str) -> Body:
    """One real request to a model, and the length of its answer."""
    item = (
        (ROOT / "models" / "digits" / "examples" / "seven.png").read_bytes()
        if model == "digits"
        else b"Where is my parcel?"
    )
    name = "image" if model == "digits" else "text"
    request = schema().ModelInferRequest(model_name=model)
    request.inputs.add(name=name, datatype="BYTES", shape=[1, 1])
    request.raw_input_contents.append(len(item).to_bytes(4, "little") + item)
    with Client(address) as client:
        client.model(model).predict(**{name: item})
    return grpc_body(request.SerializeToString())
