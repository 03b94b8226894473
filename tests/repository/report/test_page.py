"""The page: stands alone, shows every figure, and takes nothing that a person wrote for HTML."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.repository.report.figures import CROWD, MACHINE, crowd, report, result
from tritonkit.repository.export import Artifact, Signature
from tritonkit.repository.optimize import Result
from tritonkit.repository.optimize.gate import GateOutcome
from tritonkit.repository.report import Machine, Operators, render, this_machine

VOID = {"meta", "link", "br"}
SCRIPT = "<script>alert(1)</script>"


class Outline(HTMLParser):
    """Tags that were opened and not closed, attributes by tag, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID and tag != "wbr":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself, as SVG has them."""
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        """Close the last one."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect what a person reads."""
        self.text += data


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a model with eighteen variants."""
    return render([crowd(tmp_path_factory.mktemp("crowd"))], MACHINE, "2026-01-31 12:00")


def test_every_tag_is_closed_and_every_id_is_used_once(html: str) -> None:
    """Every id that a title or description refers to exists."""
    outline = Outline(html)
    assert outline.open == []
    ids = [value for _, name, value in outline.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    named = [v for _, name, v in outline.attributes if name == "aria-labelledby" and v]
    assert {one for names in named for one in names.split()} <= set(ids)


def test_the_page_needs_nothing_else(html: str) -> None:
    """No script, no address, no file: it can be mailed and opened without a network."""
    outline = Outline(html)
    tags = {tag for tag, _, _ in outline.attributes}
    assert not tags & {"script", "img", "iframe", "object", "embed", "video"}
    addresses = [v for _, name, v in outline.attributes if name in ("src", "href", "action")]
    assert [address for address in addresses if not str(address).startswith(("#", "data:,"))] == []
    assert "://" not in html
    assert "url(" not in html
    assert "@import" not in html


def test_every_variant_stands_in_the_table_with_its_figures(html: str) -> None:
    """Size, quality, drop with its interval, times, throughput, speed-up and outcome."""
    rows = re.findall(r"<tr.*?</tr>", html.partition('class="operators"')[0], re.DOTALL)[1:]
    texts = [" ".join(Outline(row).text.split()) for row in rows]
    assert len(texts) == len(CROWD)
    by_name = dict(zip((figures[0] for figures in CROWD), texts, strict=True))
    assert by_name["onnx-fp32"] == (
        "onnx-fp32 149.4 KiB 1.00 0.9861 0.0000 −0.0040 to 0.0110 0.9983 of 1.0000"
        " 0.0620 0.0187 8 in 0.150 ms 53,333 1.00 passed"
    )
    assert "published front 42.0 KiB 0.28 0.9833 0.0028" in by_name["onnx-int8-static"]
    assert by_name["onnx-int8-static"].endswith("72,727 1.36 passed, within noise")
    assert by_name["onnx-int8-lost"].endswith("refused max_drop")


def test_a_refusal_is_explained_and_the_rest_summed_up(html: str) -> None:
    """The page says by how much, the limit and the remedy; the number of others, and the variants that are not
    built."""
    text = " ".join(Outline(html).text.split())
    assert "onnx-int8-lost: accuracy is 0.4111 on 360 samples, 0.5750 below" in text
    assert "wanted a drop of at most 0.01; choose another variant" in text
    assert "18 variants are built: 14 passed the gate, 4 refused." in text
    assert "1.36 times the items per second of onnx-fp32, 0.28 of its size" in text
    assert "Not built: tensorrt-fp16, tensorrt-int8." in text
    assert "Some Processor @ 2.00GHz, 2 cores, Linux-6.1" in text
    assert "onnxruntime 1.26.0" in text


def test_plots_say_in_words_what_they_show(html: str) -> None:
    """Each picture has a title and a description; refused variants have a shape of their own."""
    pictures = re.findall(r"<svg[^>]*role=\"img\".*?</svg>", html, re.DOTALL)
    assert len(pictures) == 2 + len(CROWD), "two widths of the plot, a histogram for each variant"
    assert all("<title" in picture and "<desc" in picture for picture in pictures)
    plot = pictures[0]
    assert plot.count('class="dot-refused"') == 4
    assert plot.count('class="dot-front"') + plot.count('class="dot-passed"') == 14
    assert "ms for one item, logarithmic" in plot
    assert "accuracy, more is better" in plot


def test_the_list_beside_the_plot_names_its_points(html: str) -> None:
    """From the fastest on, each with its figures; the one far below the others is said to be."""
    listed = re.findall(r"<li value=.*?</li>", html.partition('class="points"')[2], re.DOTALL)
    texts = [" ".join(Outline(item).text.split()) for item in listed]
    assert len(texts) == len(CROWD)
    assert texts[0] == "distilled+onnx-int8-static 0.0300 ms, 0.9722"
    assert texts[5] == "onnx-int8-lost 0.0470 ms, 0.4111, below the plot"


def test_the_slowest_operators_are_shown_and_the_others_summed(html: str) -> None:
    """Fifteen bars and one for the five others; shares are of all twenty."""
    table = html.partition('class="operators"')[2].partition("</table>")[0]
    texts = [" ".join(Outline(row).text.split()) for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)]
    assert len(texts) == 16 + 1
    assert texts[1] == "/features/0/convolution_with_a_long_name/Conv Conv 0.500 18.9 %"
    assert texts[-1] == "5 others 0.265 10.0 %"
    assert "By kind: Conv 41.4 %, Relu 32.7 %, Gemm 25.9 %." in html


def test_what_people_and_libraries_wrote_is_text(tmp_path: Path) -> None:
    """A description, a note, an operator, an error or a processor with tags in it stays what it is."""
    made = result(tmp_path, "onnx-fp32", 10, 0.98, 1.0, 4.0, notes=(SCRIPT,))
    one = report((made,), Operators("onnx-fp32", "onnxruntime", 2, 1.0, problem=SCRIPT))
    one = type(one)(**{**vars(one), "description": SCRIPT, "missing": {"x": SCRIPT}})
    html = render([one], Machine(SCRIPT, 1, "Linux"), SCRIPT)
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 5


def test_a_variant_that_does_not_run_here_has_a_row_without_figures(tmp_path: Path) -> None:
    """A variant that does not run here, such as a plan for another machine, is not plotted."""
    (tmp_path / "model.rtxplan").write_bytes(b"plan")
    artifact = Artifact(
        "net",
        "tensorrt-fp16",
        tmp_path,
        {"model.rtxplan": "0"},
        Signature((), (), True),
        None,
        "0" * 64,
        {},
        ("kept, never served",),
    )
    html = render([report((Result("net", "tensorrt-fp16", True, artifact, None, GateOutcome(())),))], MACHINE, "now")
    text = " ".join(Outline(html).text.split())
    assert "not judged" in text
    assert "kept, never served" in text
    assert 'role="img"' not in html


def test_figures_of_several_runs_are_said_to_be(html: str, tmp_path: Path) -> None:
    """The page says that they were measured apart, and names a command that measures them together."""
    message = "timed in more than one run"
    first, *others = crowd(tmp_path).results
    assert first.timing is not None
    earlier = replace(first, timing=replace(first.timing, run="earlier"))
    assert message in render([report((earlier, *others))], MACHINE, "now")
    assert message not in html


def test_the_machine_is_named_as_linux_names_it(tmp_path: Path) -> None:
    """The name is the processor's model name, or else the architecture."""
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU\n")
    assert this_machine(2, tmp_path / "cpuinfo").processor == "Some CPU"
    assert this_machine(2, tmp_path / "nothing").processor
