"""The tables of README.md and docs/benchmarks.md, from the JSON of `python -m bench peers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.peers.contenders import CONTENDERS, MODELS, PYTHON_WAYS
from bench.peers.results import SHARED

__all__ = ["full", "short"]

COMMAND = (
    "python -m bench peers --models MODEL --json bench/results/peers-MODEL.json && python tools/benchmarks_page.py"
)
NOTHING = f"Nothing has been measured yet: `{COMMAND}`."
CALLERS = ("1", "8", "32", "128")
TITLES = {"digits_network": "a tiny network, raw bytes", "sentences": "text to embedding", "resnet50": "JPEG to labels"}


def short(reports: Sequence[Mapping[str, Any]]) -> str:
    """Ratios of requests per second to each peer, with 32 callers: median, lowest and highest of the rounds."""
    if not reports:
        return NOTHING
    ratios = {ratio["name"]: ratio for report in reports for ratio in report["ratios"]}
    servers = {name: c.title for name, c in CONTENDERS.items() if not c.ours and name != "ceiling"}
    models = [model for model in MODELS if any(name.startswith(f"{model},") for name in ratios)]
    lines = _head(["requests/s of tritonkit over", *(f"{model}: {TITLES[model]}" for model in models)])
    for server, title in servers.items():
        cells = [_cell(ratios, f"{model}, 32 callers: tritonkit (", f"/ {server} (") for model in models]
        if any(cell != "" for cell in cells):
            lines.append(_line([title, *cells]))
    lines.append(_line(["the best of them", *_best(ratios, models, "tritonkit")]))
    best = _best(ratios, models, "tritonkit-best")
    if any(best):
        lines.append(_line(["the best of them, with `variant: auto`", *best]))
    rounds = " or ".join(map(str, sorted({report["peers"]["rounds"] for report in reports})))
    about = (
        f"Requests/s of 32 callers, server and load on the same two cores, each server by the faster of its protocols"
        f" (gRPC's callers share a connection); medians of {rounds} rounds in turns with their least and most."
        f" `{COMMAND}`"
    )
    return "\n".join([*lines, "", about])


def full(reports: Sequence[Mapping[str, Any]]) -> str:
    """A table for each model and arrangement, with every figure that was taken; one report after the other."""
    return "\n\n".join("\n".join(_whole(report)) for report in reports) or NOTHING


def _whole(report: Mapping[str, Any]) -> Iterator[str]:
    peers = report["peers"]
    arrangements = list(dict.fromkeys(row["cores"] for row in peers["rows"]))
    for model in MODELS:
        for cores in arrangements:
            rows = [row for row in peers["rows"] if (row["model"], row["cores"]) == (model, cores)]
            if rows:
                yield f"### {model}: {TITLES[model]}; {cores}"
                yield from ("", _about(report, rows), "", *_table(rows, cores), "")
    yield from _settings(peers["rows"])
    yield from (f"- {name} is not here: {_plain(why)}" for name, why in peers["absent"].items())
    yield from (f"- {where} failed: {_plain(why)}" for where, why in peers["failed"].items())


def _about(report: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    machine, rounds = report["machine"], max(row["rounds"] for row in rows)
    return (
        f"Medians of {rounds} rounds of {report['peers']['seconds']} s, on a machine of {machine['cores']} cores"
        f" ({machine['machine']}) and of that run. Requests/s for 32 callers also with their least and most."
    )


def _table(rows: Sequence[Mapping[str, Any]], cores: str) -> Iterator[str]:
    shared = cores == SHARED
    limits = ["highest rate with p99 < 10 ms", "< 50 ms"] if shared else []
    yield from _head(
        [
            "server",
            *(f"requests/s, {n}" for n in CALLERS),
            "p50, p95, p99 ms at 32",
            *limits,
            "server's time, us",
            "load's cores",
            "MiB",
            "ready, s",
            "lines",
        ]
    )
    for row in rows:
        for name, way in row["ways"].items():
            yield _line([*_figures(row, name, way, shared)])


def _figures(row: Mapping[str, Any], name: str, way: Mapping[str, Any], shared: bool) -> Iterator[str]:
    closed = way["closed"]
    middle = closed["32"]
    yield f"{CONTENDERS[row['server']].title}, {_way_title(name)}"
    for callers in CALLERS:
        median, least, most = closed[callers]["per_s"]
        spread = f" ({_number(least)} to {_number(most)})" if callers == "32" else ""
        yield _number(median) + spread
    yield ", ".join(_number(middle.get(f"p{point}_ms")) for point in (50, 95, 99))
    if shared:
        limits = way.get("open", {})
        yield from (_number(limits.get(limit)) for limit in ("10", "50"))
    yield _number(middle.get("server_us"))
    yield _number(middle.get("generator_cores"))
    yield from (_number(row[key]) for key in ("memory_mib", "ready_s", "lines"))


def _way_title(name: str) -> str:
    if name in PYTHON_WAYS:
        return {"tritonclient": "tritonclient", "client": "our client"}.get(name, "our client's batching")
    return {
        "http": "HTTP",
        "http-json": "HTTP, JSON",
        "http-socket": "Triton's own HTTP, no guard",
        "grpc": "gRPC",
        "grpc-connections": "gRPC, a connection each",
    }[name]


def _settings(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The releases and settings of each peer."""
    yield "Settings that were the fastest of those tried:"
    yield ""
    for row in rows:
        if row["settings"]:
            chosen = ", ".join(f"{name.lower()} {value}" for name, value in row["settings"].items())
            yield f"- {row['server']}, {row['model']}, {row['cores']}: {chosen}"


def _cell(ratios: Mapping[str, Any], begin: str, within: str) -> str:
    """A ratio whose name begins and continues in this way; nothing if there is none."""
    for name, ratio in ratios.items():
        if name.startswith(begin) and within in name:
            return _spread(ratio)
    return ""


def _best(ratios: Mapping[str, Any], models: Sequence[str], ours: str) -> list[str]:
    return [_cell(ratios, f"{model}, 32 callers: {ours} (", "/ the best peer") for model in models]


def _spread(ratio: Mapping[str, Any]) -> str:
    rounds = ratio["rounds"]
    return f"{ratio['median']:.2f} ({min(rounds):.2f} to {max(rounds):.2f})"


def _number(value: float | None) -> str:
    """A number with three significant digits."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _plain(text: str) -> str:
    return " ".join(text.split())


def _head(titles: Sequence[str]) -> list[str]:
    return [_line(titles), _line(["---"] * len(titles))]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
