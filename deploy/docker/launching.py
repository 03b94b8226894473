"""The command line of the container's tritonserver, from its options, its environment and the repository.

It runs in the images: standard library only, and nothing of tritonkit but the copied modules.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from allowed import config_flag
from callers import later
from checks import MIB, Refused, check_key, check_memory, check_repository, read_needs
from core.devices import Driver, find_driver
from core.flags import HTTP_SOCKET, POOL_FLAGS, flag_values, server_arguments
from core.launch import Launch, guard_in
from core.native_backends import ENGINES, PAD, backend_flags, find_native_backends, why_not
from core.pools import GpuNeeds, plan_pools
from core.rest import CONTAINER_MIB, RestLimits, envoy_command, envoy_config, envoy_threads, find_envoy
from core.restarting import Restarting
from core.tensorrt import engines_folder
from core.threads import thread_variables
from fitting import ON_GPU, Refusal, left_out, nothing_left
from health import RUN
from machine import cores

__all__ = ["HOST", "REGIONS", "SHARED_MEMORY", "backends", "command", "rest_proxy", "say"]

_HOME = Path("/opt/tritonserver")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where POSIX shared memory is on Linux)
REGIONS = "tritonkit_"
_VENV = Path("/opt/tritonkit/venv")
HOST = "0.0.0.0"  # noqa: S104 (the container's own; compose publishes it on loopback)
_HTTP_PORT, _GRPC_PORT = 8000, 8001
_CACHED = re.compile(r"response_cache\s*{\s*enable:\s*true")
_TRACE_URL = re.compile(r"https?://[^\s,]+")
_MESSAGE_BYTES = 64 * MIB
"""The largest request if no builder computed one."""


def say(text: str) -> None:
    """Write a line to the container's log."""
    sys.stderr.write(f"{text}\n")


def command(options: argparse.Namespace, extra: list[str], drain_s: int) -> tuple[Launch, dict[str, Refusal]]:
    """The process to start, and the models that it does without. Refused if the repository, the key or /dev/shm is not
    usable, or no model can be served.

    Args:
        drain_s: seconds for the requests in flight at its end.
    """
    models = check_repository(options.repository)
    key = _own_key() if options.own_key and not options.key_file.exists() else check_key(options.key_file)
    needs = read_needs(options.needs)
    check_memory(needs, SHARED_MEMORY)
    guard = guard_in(_VENV)
    if guard is None:
        say("warning: the native guard is missing: requests may have up to 2 GiB")
    replaced = tuple(f"--{name}=" for name in POOL_FLAGS if flag_values(extra, name))
    driver = cache(find_driver)
    without = left_out(options.repository, _VENV if _has_stand_ins() else None, needs, driver)
    if set(models) <= without.keys():
        raise Refused(options.repository, *nothing_left(without))
    served = [name for name in models if name not in without]
    words = [w for w in _arguments(options, served, needs, drain_s, driver) if not w.startswith(replaced)]
    launch = Launch(
        argv=[*words, *config_flag(options.repository, extra), *extra],
        env=os.environ | thread_variables(cores(), os.environ),
        cwd=str(RUN),
        key=key,
        grpc_port=_GRPC_PORT,
        message_bytes=int(needs.get("message_bytes", _MESSAGE_BYTES)),
        file_bytes=int(needs.get("file_bytes", 0)),
        guard=str(guard) if guard else "",
    )
    return launch, without


def rest_proxy(options: argparse.Namespace) -> Restarting[subprocess.Popen[bytes]]:
    """The Envoy before Triton's HTTP."""
    needs = read_needs(options.needs)
    limits = RestLimits(max_request_bytes=int(needs.get("message_bytes", _MESSAGE_BYTES)), max_memory_mib=CONTAINER_MIB)
    hosts, origins = options.http_hosts.split(), options.http_origins.split()
    envoy = find_envoy(_VENV)
    try:
        config = envoy_config(
            HOST, _HTTP_PORT, HTTP_SOCKET, limits, hosts, origins, shared_memory=options.shared_memory
        )
    except ValueError as error:
        raise Refused(
            Path("TRITON_HTTP_HOSTS, TRITON_HTTP_ORIGINS"),
            str(error),
            "names, and origins such as https://app.example.org, with spaces between",
        ) from None
    if envoy is None:
        raise Refused(_VENV, "there is no envoy for HTTP", "build the image again, or --no-http")
    (RUN / "envoy.json").write_text(json.dumps(config))
    words = envoy_command(envoy, "envoy.json", envoy_threads(cores=cores()))
    process = Launch(argv=words, env={}, cwd=str(RUN))

    def died(code: int, again: bool) -> None:
        end = "starting again" if again else "it is not started again"
        say(f"error: envoy ended with exit code {code}; {end}")

    return Restarting(process.start, died)


def _arguments(
    options: argparse.Namespace, models: list[str], needs: dict[str, Any], drain_s: int, driver: Callable[[], Driver]
) -> list[str]:
    configs = "".join((options.repository / name / "config.pbtxt").read_text() for name in models)
    folder, flags = backends(options.backend)
    if f'"{PAD}"' in configs and not _has_stand_ins():
        raise Refused(
            options.repository,
            "a model's requests of different lengths share its batches, which NVIDIA's backends cannot pad",
            "build it again: tritonkit build --target nvidia",
        )
    gpus = len(driver().devices) if ON_GPU in configs else 0
    pools = plan_pools(_gpu_needs(needs, models), gpus)
    late = later(options.repository)
    common = server_arguments(
        binary=_HOME / "bin" / "tritonserver",
        repository=options.repository,
        backends=folder,
        models=[name for name in models if name not in late],
        caches=_HOME / "caches" if _CACHED.search(configs) else None,
        limits_rate="rate_limiter" in configs,
        drain_s=drain_s,
        prefix=REGIONS,
        region_bytes=int(needs.get("region_bytes", MIB)),
        grpc_host=HOST,
        grpc_port=_GRPC_PORT,
        shared_memory=options.shared_memory,
        pinned_bytes=pools.pinned_bytes,
        cuda_bytes=pools.cuda_bytes,
    )
    return [*common, *flags, *_age_flags(options), *_trace_flags(options)]


def _gpu_needs(needs: dict[str, Any], models: list[str]) -> list[GpuNeeds]:
    """The needs of the served models on GPUs, as the builder computed them."""
    return [GpuNeeds.from_dict(facts) for name, facts in needs.get("gpu_models", {}).items() if name in models]


@cache
def _own_key() -> str:
    """A random key of this container."""
    return secrets.token_urlsafe(32)


def _age_flags(options: argparse.Namespace) -> list[str]:
    """gRPC asks connections of this age to close (GOAWAY): their calls are answered, later calls open a new one."""
    age = options.connection_age_s
    if not age:
        return []
    if not age.isdecimal() or not int(age):
        raise Refused(Path("TRITON_CONNECTION_AGE_S"), f"it is {age}", "whole seconds from 1, or leave it out")
    return [f"--grpc-max-connection-age={int(age) * 1000}"]


def _trace_flags(options: argparse.Namespace) -> list[str]:
    """Flags that send spans to a collector: of one request in N, and of requests with a caller's `traceparent`."""
    url, rate = options.trace_url, options.trace_rate
    if not url:
        return []
    if not _TRACE_URL.fullmatch(url) or not (rate.isdecimal() and int(rate)):
        raise Refused(
            Path("TRITON_TRACE_URL, TRITON_TRACE_RATE"),
            f"they are {url} and {rate}",
            "OTLP over HTTP, such as http://collector:4318/v1/traces; one request in how many, 1 or more",
        )
    settings = (
        "mode=opentelemetry",
        f"opentelemetry,url={url}",
        "opentelemetry,resource=service.name=triton",
        f"rate={rate}",
        "level=TIMESTAMPS",
    )
    return [f"--trace-config={setting}" for setting in settings]


@cache
def backends(choice: str) -> tuple[Path, tuple[str, ...]]:
    """The folder of backends to serve from, and tritonserver's flags for them.

    The native ones are tried here, because the image may have been built on a machine of another kind.
    Where one of them cannot be used, the stand-ins serve for all.
    """
    usual, native = _HOME / "backends", _HOME / "native-backends"
    if choice not in ("auto", "native", "python"):
        raise Refused(Path("TRITON_BACKEND"), f"it is {choice}", "set it to auto, native or python")
    if choice == "python" or not _has_stand_ins():
        return usual, ()
    libraries = find_native_backends(_VENV, _HOME / "lib")
    wrong = why_not(libraries)
    if not wrong:
        return native, tuple(backend_flags(libraries.values(), engines_folder()))
    if choice == "native":
        raise Refused(native, f"they cannot be used: {wrong}", "TRITON_BACKEND=auto or python")
    say(f"warning: Python stand-ins serve instead of native backends ({wrong}): see docs/docker.md")
    return usual, ()


def _has_stand_ins() -> bool:
    """Whether the backends are tritonkit's: NVIDIA's image has its own."""
    return any((_HOME / "backends" / name / "model.py").is_file() for name in ENGINES)
