"""A row for each page of the cookbook."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.families import fastapi, shares, triton
from bench.families.callers import written
from bench.families.kitchen import PAGES, Page, kitchen
from bench.families.packages import HOME
from bench.families.recipes import compared, recipes
from bench.families.table import table
from bench.peers.environment import environment
from bench.programs import output
from bench.report import Ratio, Report
from bench.setting import chosen
from tritonkit.errors import ClientError, TritonkitError
from tritonkit.serve.install import find_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.families.kitchen import Kitchen
    from bench.families.recipes import Answer, Item, Recipe
    from bench.setting import Setting

__all__ = ["EQUAL", "row", "run"]

CHOICE_S = 2.0
_FEW = 3
"""A page with more models than these has a table of where its time goes."""
EQUAL = 0.98
"""The share of names that are equal: of two with nearly the same score, either may come first."""


def run(setting: Setting) -> Report:
    """Pages of the cookbook: lines to write, minutes to an answer, equality, batches, requests/s over FastAPI."""
    setting.refuse_address()
    pages = chosen("--models", setting.models, PAGES)
    find_server()  # before the minutes that an environment for FastAPI takes
    HOME.mkdir(parents=True, exist_ok=True)
    requirements = fastapi.HERE / "requirements.txt"
    bin_folder = environment("fastapi", requirements, HOME, setting.engine_python)
    rows: list[dict[str, Any]] = []
    for name in pages:
        print(f"{name} ...", file=sys.stderr, flush=True)
        page = Page.read(name)
        if name not in recipes():
            rows.append({"page": name, "lines": page.lines})
            continue
        try:
            rows.append({"page": name, "lines": page.lines, **row(setting, page, bin_folder)})
        except TritonkitError as error:
            print(error, file=sys.stderr, flush=True)
            rows.append({"page": name, "lines": page.lines, "problem": error.found})
    return Report(
        "families",
        "requests/s of 16 callers over FastAPI's, the same network and cores, in turns",
        [ratio for row in rows for ratio in _ratios(row)]
        + [Ratio("pages that ran / all", [sum("problem" not in row for row in rows) / len(rows)], at_least=1.0)],
        {"families": rows},
        [
            "",
            *table(rows),
            *(
                line
                for row in rows
                if len(row.get("time", ())) > _FEW
                for line in shares.lines(row["page"], row["time"])
            ),
        ],
    )


def row(setting: Setting, page: Page, bin_folder: Path, *, small: bool = False) -> dict[str, Any]:
    """Run a page that has a recipe in an empty folder, compare its answers, and load it and its app in turns.

    Args:
        bin_folder: the programs of the environment that has FastAPI.
        small: whether the network is a small one, for tests, instead of one of the page's own size.

    Raises:
        TritonkitError: a command of the page fails, or the app's answers are not those of the reference.
    """
    recipe = recipes()[page.name]
    with tempfile.TemporaryDirectory() as folder, kitchen(Path(folder)) as place:
        place.http = True
        items = recipe.prepare(place, small)
        place.cook(page)
        pair = _Pair(recipe, place, bin_folder, items, recipe.reference(place.folder, items))
        share, largest = compared(
            triton.answers_of(recipe, place.address, items), pair.references, aligned=recipe.aligned
        )
        return {
            "network": "small" if small else "of the page's own size, random weights",
            "seconds": {command: round(seconds, 1) for command, seconds in place.seconds},
            "minutes": round(sum(seconds for _, seconds in place.seconds) / 60, 2),
            "equal": round(share, 4),
            "difference": largest,
            "at_most": recipe.at_most,
            **pair.side_by_side(setting),
        }


@dataclass(frozen=True)
class _Pair:
    """A page that is served, and its app in FastAPI."""

    recipe: Recipe
    place: Kitchen
    bin_folder: Path
    items: Sequence[Item]
    references: Sequence[Answer]

    def side_by_side(self, setting: Setting) -> dict[str, Any]:
        """Rates of both in turns, and the batches that Triton made meanwhile."""
        folder, network = self.place.folder, self.recipe.network
        path = f"/v2/models/{self.recipe.model}/infer"
        ours = written([triton.request(item) for item in self.items], path, folder / "requests")
        theirs = written([fastapi.request(item) for item in self.items], fastapi.PATH, folder / "requests-fastapi")
        settings = self.fastest(theirs)
        rates: dict[str, list[float]] = {"tritonkit": [], "fastapi": []}
        generator = []
        with self.app(settings) as address:
            before, spent = triton.batches(self.place.address, network), shares.seconds(self.place)
            for number in range(setting.rounds):
                turns = [("tritonkit", self.place.http_address, ours), ("fastapi", address, theirs)]
                for name, at, requests in turns if number % 2 == 0 else reversed(turns):
                    load = _load(at, requests, setting.seconds)
                    rates[name].append(load["per_s"])
                    generator.append(load["generator_share"])
            runs = triton.batches(self.place.address, network) - before
            time = shares.shares(spent, shares.seconds(self.place))
        return {
            "per_s": {name: [round(rate, 2) for rate in rated] for name, rated in rates.items()},
            "ratios": [one / other for one, other in zip(rates["tritonkit"], rates["fastapi"], strict=True)],
            "batch": {"mean": sum(size * count for size, count in runs.items()) / runs.total(), "largest": max(runs)},
            "fastapi": dict(settings),
            "time": time,
            "generator_share": round(max(generator), 3),
        }

    def fastest(self, requests: Path) -> Mapping[str, str]:
        """FastAPI's faster setting.

        Raises:
            ClientError: its answers are not those of the reference.
        """
        tried = []
        for settings in fastapi.SETTINGS:
            with self.app(settings) as address:
                answers = fastapi.answers_of(self.recipe, address, self.items)
                share, largest = compared(answers, self.references, aligned=self.recipe.aligned)
                if share < EQUAL or largest > self.recipe.at_most:
                    raise ClientError(
                        f"{self.recipe.app} in FastAPI",
                        found=f"{share:.1%} of its names are equal, and a number differs by {largest:.2g}",
                        wanted=f"at least {EQUAL:.0%}, and at most {self.recipe.at_most}",
                    )
                tried.append(_load(address, requests, CHOICE_S)["per_s"])
        return fastapi.SETTINGS[tried.index(max(tried))]

    def app(self, settings: Mapping[str, str]) -> AbstractContextManager[str]:
        """The address of the app for a block."""
        return fastapi.app(self.recipe, self.place.folder, self.bin_folder, settings, self.items[0])


def _load(address: str, requests: Path, seconds: float) -> dict[str, Any]:
    measured = output(
        Path(sys.executable),
        "bench.families.callers",
        address,
        str(requests),
        f"--callers={triton.CALLERS}",
        f"--seconds={seconds}",
    )
    if measured["failures"] or not measured["answers"]:
        found = f"{measured['failures']} failures, {measured['answers']} answers under load"
        raise ClientError(address, found=found, details=measured["first"])
    return measured


def _ratios(row: Mapping[str, Any]) -> list[Ratio]:
    if "per_s" not in row:
        return []
    page, rates = row["page"], row["per_s"]
    facts = {"requests/s": rates, "batches": row["batch"], "FastAPI": row["fastapi"]}
    return [
        Ratio(f"{page}: requests/s / FastAPI's", row["ratios"], facts=facts),
        Ratio(f"{page}: largest difference / what is right", [row["difference"] / row["at_most"]], at_most=1.0),
        Ratio(f"{page}: equal names / all", [row["equal"]], at_least=EQUAL),
    ]
