"""Tables of results in pages: between markers, made from a bench's JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["between", "placed", "ratios"]


def placed(page: str, table: str, bench: str) -> str:
    """The page with the table between the bench's markers; see `between`."""
    return between(page, table, f"python -m bench {bench}")


def between(page: str, table: str, command: str) -> str:
    """The page with the table between the markers of the command that makes it.

    Raises:
        ValueError: the page has not both markers once, in this order.
    """
    begin, end = (f"<!-- {command}: {word} -->" for word in ("begin", "end"))
    before, marker, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not marker or not ended or begin in after or end in after:
        raise ValueError(f"wanted {begin} and after it {end}, once each")
    return f"{before}{begin}\n\n{table.strip()}\n\n{end}{after}"


def ratios(reports: Sequence[Mapping[str, Any]]) -> str:
    """A row for each ratio of a bench's runs: its median, least and most over the rounds, its limit, and whether that
    was kept."""
    all_ratios = [ratio for report in reports for ratio in report["ratios"]]
    counts = sorted({max(len(ratio["rounds"]) for ratio in report["ratios"]) for report in reports})
    machine = " and ".join(
        sorted({f"{report['machine']['cores']} cores ({report['machine']['machine']})" for report in reports})
    )
    lines = [
        f"Medians of {' or '.join(map(str, counts))} rounds, least to most, on a machine of {machine} and of that run.",
        "",
        f"| {reports[0]['about'].split(';')[0].split(':')[0]} | ratio | limit | kept |",
        "| --- | --- | --- | --- |",
    ]
    for ratio in all_ratios:
        spread = f"{ratio['median']:.2f} ({min(ratio['rounds']):.2f} to {max(ratio['rounds']):.2f})"
        kept = "" if _limit(ratio) == "" else "yes" if ratio["holds"] else "**no**"
        lines.append(f"| {ratio['name']} | {spread} | {_limit(ratio)} | {kept} |")
    return "\n".join(lines)


def _limit(ratio: Mapping[str, Any]) -> str:
    least, most = ratio["at_least"], ratio["at_most"]
    if least is not None and most is not None:
        return f"{least:.2f} to {most:.2f}"
    if most is not None:
        return f"at most {most:.2f}"
    return "" if least is None else f"at least {least:.2f}"
