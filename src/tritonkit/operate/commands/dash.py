"""`tritonkit dash`: the panels where there is no Grafana."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tritonkit.cli.fields import expanded
from tritonkit.cli.options import AsJson, Root, project_or_here, seconds
from tritonkit.cli.output import note, print_json, print_line
from tritonkit.disk import unwritable
from tritonkit.errors import UsageError
from tritonkit.option import Option

if TYPE_CHECKING:
    from tritonkit.operate.observe import View

__all__ = ["command"]

_LEAST_RANGE_S = 30.0
_LOOK_S = 15.0
"""Seconds until a Prometheus of our own has enough to draw; `--out` and `--json` wait that long by default."""
_REFRESH_S = 5.0


@dataclass(frozen=True)
class DashOptions:
    """The source of a page's figures, and the time that they cover."""

    prometheus: Annotated[
        str | None, Option("A Prometheus that scrapes the jobs triton and gateway.", metavar="URL")
    ] = None
    metrics: Annotated[
        str | None,
        Option(
            "Without --prometheus: the replicas' metrics, which a Prometheus of this command's own scrapes every "
            "second; by default those of `tritonkit serve` in this project.",
            metavar="HOST:PORT,...",
        ),
    ] = None
    gateway: Annotated[
        str | None, Option("With --metrics: the gateway's metrics, with a path if it has one.", metavar="HOST:PORT")
    ] = None
    model: Annotated[Sequence[str] | None, Option("Show only this model; may be repeated.", metavar="NAME")] = None
    past: Annotated[str, Option("Time that the plots cover.", name="--range", metavar="TIME")] = "15min"
    port: Annotated[int, Option("Port of the page; 0 picks a free one.", min=0, max=65535)] = 8003
    out: Annotated[Path | None, Option("Write the page to this file instead of serving it.")] = None
    duration: Annotated[
        str | None,
        Option(
            "Time for which to serve the page, without limit by default; with --out and --json, time to observe first.",
            metavar="TIME",
        ),
    ] = None


@expanded("dash")
def command(
    options: DashOptions,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Show traffic, errors, latency, queues, batches, replicas and alerts, as a page on this machine.

    The panels are those of the Grafana dashboard that `tritonkit dashboard` writes.

    Example: tritonkit dash --prometheus http://127.0.0.1:9090
    """
    from tritonkit.operate.observe import Chosen, Prometheus, look

    chosen = Chosen(seconds("--range", options.past, _LEAST_RANGE_S), tuple(options.model or ()))
    duration_s = None if options.duration is None else seconds("--duration", options.duration)
    if options.prometheus is not None and (options.metrics or options.gateway):
        raise UsageError(
            "--prometheus",
            found="it cannot be used together with --metrics or --gateway",
            wanted="a Prometheus, or the addresses to scrape without one",
        )
    with contextlib.ExitStack() as stack:
        url, scrape_s = options.prometheus, None
        if url is None:
            url, scrape_s = stack.enter_context(_recorded(options.metrics, options.gateway, project_or_here(root)))
        source = Prometheus(url)
        stack.callback(source.close)

        def see() -> View:
            return look(source, chosen, scrape_s)

        see()  # a Prometheus that does not answer is said now
        if options.out is not None or as_json:
            # One that has run for long has it all.
            _wait(duration_s or (_LOOK_S if scrape_s else 0.0))
            _write(see(), options.out, as_json)
        else:
            _serve(see, options.port, duration_s)


@contextlib.contextmanager
def _recorded(metrics: str | None, gateway: str | None, project: Path) -> Iterator[tuple[str, float]]:
    """A Prometheus of our own, and its scrape interval."""
    from tritonkit.operate.observe import ALERTS, recording, rules_text
    from tritonkit.operate.observe.private import SCRAPE_S
    from tritonkit.serve.runs import find_runs

    addresses = [run["metrics"] for run in find_runs(project)] if metrics is None else metrics.split(",")
    replicas = [_address("--metrics", text) for text in addresses]
    if not replicas:
        raise UsageError(
            "tritonkit dash",
            found="neither --prometheus nor --metrics, and no server of this project runs",
            wanted="a Prometheus, or replicas to look at",
            todo="tritonkit serve, or tritonkit dash --prometheus http://127.0.0.1:9090",
        )
    admin = None if gateway is None else _address("--gateway", gateway)
    with recording(replicas, admin, rules=rules_text(ALERTS)) as url:
        note(f"a Prometheus of its own looks at {', '.join(replicas)}; what was before is not known")
        yield url, SCRAPE_S


def _address(option: str, text: str) -> str:
    host, _, port = text.strip().partition("/")[0].rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(option, found=repr(text), wanted="host:port of a /metrics")
    return text.strip()


def _wait(duration_s: float) -> None:
    if duration_s:
        note(f"looking for {duration_s:g} s ...")
        time.sleep(duration_s)


def _write(view: View, out: Path | None, as_json: bool) -> None:
    from tritonkit.operate.observe import page

    if out is not None:
        try:
            out.write_text(page(view), encoding="utf-8", errors="replace")
        except OSError as error:
            raise unwritable(out, error, UsageError) from error
        note(f"wrote {out}")
    if as_json:
        print_json(view.to_dict())


def _serve(see: Callable[[], View], port: int, duration_s: float | None) -> None:
    """Serve the page until the time is over, or Ctrl-C."""
    from tritonkit.operate.observe import PageServer, page

    server = PageServer(port, lambda: page(see(), refresh_s=_REFRESH_S))
    end = math.inf if duration_s is None else time.monotonic() + duration_s
    server.timeout = 0.5
    print_line(f"{server.url}: Ctrl-C ends it")
    with server, contextlib.suppress(KeyboardInterrupt):
        while time.monotonic() < end:
            server.handle_request()
