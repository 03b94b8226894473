"""Judgments from the gateway's log lines."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tritonkit.operate.release import log as log_module
from tritonkit.operate.release.judge import FAILS_MORE, Judge
from tritonkit.operate.release.log import Judged, ReleaseLog, read_line
from tritonkit.operate.release.rules import parse_rules


@pytest.mark.parametrize(
    ("line", "judged"),
    [
        ("grpc\tr:1\t200\t0\t-\t1500\tone", Judged(False, 1.5, False, key="one")),
        ("grpc-candidate\tc:1\t200\t0\t-\t900\tone", Judged(True, 0.9, False, key="one")),
        ("grpc-candidate\tr:1\t200\t0\t-\t900\tone", Judged(True, 0.9, True, key="one")),
        ("grpc-candidate\tc:1\t200\t13\t-\t900\tone", Judged(True, 0.9, True, key="one")),
        ("grpc-candidate\t-\t200\t14\tUF\t900\tone", Judged(True, 0.9, True, key="one")),
        ("grpc\tr:1\t200\t3\t-\t900\tone", Judged(False, 0.9, False, True, "one")),
        ("rest-candidate\tc:2\t200\t-\t-\t900\tone", Judged(True, 0.9, False, key="one")),
        ("rest-candidate\tc:2\t503\t-\t-\t900\tone", Judged(True, 0.9, True, key="one")),
        ("rest\tr:2\t400\t-\t-\t900\tone", Judged(False, 0.9, False, True, "one")),
        ("grpc\t-\t200\t8\tRL\t10\tone", None),
        ("grpc\tr:1\t0\t-\tDC\t10\tone", None),
        ("grpc-candidate\t-\t408\t2\tDT\t-\tone", None),  # never sent whole
        ("grpc\tr:1\t200\t0\t-\t-\tone", None),
        ("grpc\t200\t0\tone", None),
        ("", None),
    ],
)
def test_lines_are_read(line: str, judged: Judged | None) -> None:
    """Statuses of both protocols, and who answered; what says nothing of a version is left out."""
    assert read_line(line, ("c:1", "c:2")) == judged


def test_a_log_is_read_as_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what came since, whole lines, and the file does not grow for ever."""
    file = tmp_path / "log"
    file.write_text("grpc\tr:1\t200\t0\t-\t1\tone\n")
    monkeypatch.setattr(log_module, "_LONGEST_BYTES", 100)
    with ReleaseLog(file, ["c:1"]) as log, file.open("a") as writer:
        assert log.read() == []
        writer.write("grpc\tr:1\t200\t0\t-\t2000\tone\ngrpc-cand")
        writer.flush()
        assert [request.ms for request in log.read()] == [2.0]
        writer.write("idate\tc:1\t200\t0\t-\t3000\tone\n" + "grpc\tr:1\t200\t0\t-\t4000\tone\n" * 5)
        writer.flush()
        read = log.read()
        assert read[0].candidate
        assert len(read) == 6
        assert file.stat().st_size == 0
        writer.write("grpc\tr:1\t200\t0\t-\t5000\tone\n")
        writer.flush()
        assert [request.ms for request in log.read()] == [5.0]


def good(candidate: bool, count: int, ms: float = 2.0) -> list[Judged]:
    """Requests that were answered."""
    return [Judged(candidate, ms, False) for _ in range(count)]


def broken(judge: Judge) -> list[str]:
    """The rules that are."""
    return [finding.rule for finding in judge.findings if finding.broken]


def test_a_good_candidate_breaks_no_rule() -> None:
    """However long it goes on."""
    judge = Judge(parse_rules("p99>20ms,p99>2x,errors>0.1%"))
    for _ in range(50):
        judge.add([*good(True, 20), *good(False, 80)])
    assert broken(judge) == []
    assert judge.candidate.percentile(99) == 2.0


def test_a_slow_candidate_breaks_the_target_and_the_ratio() -> None:
    """A ratio is known once there are enough requests of the stable version."""
    judge = Judge(parse_rules("p99>20ms,p99>2x"))
    judge.add(good(True, 3, 30.0))
    assert broken(judge) == ["p99>20ms"]
    assert "not known yet" in judge.findings[1].found
    assert judge.missing == 500
    judge.add(good(False, 600))
    assert judge.missing == 0
    assert broken(judge) == ["p99>20ms", "p99>2x"]  # what came before it was known is judged, too


def test_a_candidate_that_fails_breaks_both_rules_about_errors() -> None:
    """Its own share, and more than the stable version."""
    judge = Judge(parse_rules("errors>0.1%"))
    judge.add([*good(False, 100), *(Judged(True, 1.0, True) for _ in range(8))])
    assert broken(judge) == ["errors>0.1%", FAILS_MORE]


def test_a_candidate_that_refuses_what_the_stable_version_takes_is_found() -> None:
    """No error of a server's: only the comparison sees it. Callers' own mistakes are in both."""
    judge = Judge(parse_rules("errors>0.1%"))
    refused = [Judged(True, 1.0, False, True) for _ in range(10)]
    judge.add([*good(False, 100), *refused])
    assert broken(judge) == [FAILS_MORE]
    judge = Judge(parse_rules("errors>0.1%"))
    for _ in range(20):
        both = [Judged(candidate, 1.0, False, True) for candidate in (True, False, False, False)]
        judge.add([*both, *good(True, 4), *good(False, 12)])
    assert broken(judge) == []


def test_a_failed_request_is_not_in_time() -> None:
    """A request that fails immediately must not make a candidate look fast."""
    judge = Judge(parse_rules("p99>20ms"))
    judge.add([Judged(True, 0.1, True) for _ in range(5)])
    assert "p99>20ms" in broken(judge)


@pytest.mark.parametrize(("rule", "ms", "failed"), [("p99>20ms", 80.0, False), ("errors>0.1%", 1.0, True)])
@pytest.mark.parametrize("share", [5, 25, 50])
def test_callers_alone_do_not_send_a_release_back(rule: str, ms: float, failed: bool, share: int) -> None:
    """Requests that are late or fail at both versions: by heavy inputs, or deadlines that nobody meets."""
    judge, draw = Judge(parse_rules(rule)), random.Random(share)
    for _ in range(100):
        honest = [Judged(draw.uniform(0, 100) < share, 2.0, False) for _ in range(50)]
        judge.add(honest + [Judged(draw.uniform(0, 100) < share, ms, failed, key="evil") for _ in range(20)])
    assert broken(judge) == []
    assert "of them with key evil" in judge.findings[0].found


def test_a_candidate_that_is_late_more_often_than_a_late_stable_version_goes_back() -> None:
    """Late callers do not hide a slow candidate."""
    judge = Judge(parse_rules("p99>20ms"))
    for _ in range(20):
        judge.add([*good(True, 7), *good(True, 3, 80.0), *good(False, 36), *good(False, 4, 80.0)])
    assert broken(judge) == ["p99>20ms"]


def test_the_limit_counts_again_once_the_stable_version_keeps_it() -> None:
    """Half a minute later the candidate's own share decides."""
    judge = Judge(parse_rules("p99>20ms"))
    judge.add([*good(True, 5, 80.0), *good(False, 50, 80.0)])
    assert broken(judge) == []
    for _ in range(60):
        judge.add(good(False, 10))
    judge.add(good(True, 5, 80.0))
    assert broken(judge) == ["p99>20ms"]
