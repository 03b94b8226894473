"""Reading a machine: this one's own /proc, and folders that look like another's."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tritonkit.perf.diagnose import machine
from tritonkit.perf.diagnose.machine import RunnableThreads, find_server, look_at_machine, server_processes
from tritonkit.perf.diagnose.metrics import metrics_of, read_metrics
from tritonkit.perf.load.prometheus import parse_samples


def test_this_process_is_looked_at() -> None:
    """Its CPU and its threads; of a process that is gone there is nothing."""
    facts = look_at_machine(os.getpid(), 3)
    assert facts is not None
    assert facts.cores == 3
    assert facts.busy_s > 0
    own = next(process for process in facts.processes if process.pid == os.getpid())
    assert own.model == ""
    assert own.cpu_s > 0
    assert os.getpid() in own.threads
    assert look_at_machine(2**30, 3) is None
    assert server_processes(os.getpid())[os.getpid()] == ""


def test_only_a_triton_is_found_behind_a_port() -> None:
    """Another program that listens, a proxy perhaps, says nothing of the server; nor does a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert find_server(port) is None
    assert find_server(port) is None


def test_a_stub_is_known_by_its_command_line(tmp_path: Path) -> None:
    """The model is the folder two above its file."""
    for pid, parent, words in (
        (10, 1, ["tritonserver"]),
        (11, 10, ["/x/triton_python_backend_stub", "/r/digits/1/model.py", "region"]),
        (12, 10, ["/x/triton_python_backend_stub", "odd"]),
        (13, 1, ["another"]),
    ):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (a (b) c) S {parent} 0")
        (folder / "cmdline").write_text("\0".join(words))
    assert server_processes(10, tmp_path) == {10: "", 11: "digits", 12: ""}


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_both_versions_of_cgroups_are_read(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Periods and throttled time, the memory's limit, use and hits."""
    groups, proc = tmp_path / "cgroup", tmp_path / "proc"
    (proc / "7").mkdir(parents=True)
    monkeypatch.setattr(machine, "_CGROUPS", groups)
    if version == 1:
        lines, files = (
            "3:cpu,cpuacct:/c\n2:memory:/c\n0::/\n",
            {
                "cpu/c/cpu.stat": "nr_periods 50\nnr_throttled 25\nthrottled_time 2000000000\n",
                "memory/c/memory.stat": "",
                "memory/c/memory.usage_in_bytes": "512",
                "memory/c/memory.failcnt": "9",
                "memory/c/memory.limit_in_bytes": "1024",
                "memory/c/memory.oom_control": "oom_kill 1\n",
            },
        )
    else:
        lines, files = (
            "0::/c\n",
            {
                "c/cpu.stat": "usage_usec 1\nnr_periods 50\nnr_throttled 25\nthrottled_usec 2000000\n",
                "c/memory.stat": "",
                "c/memory.current": "512",
                "c/memory.max": "1024",
                "c/memory.events": "low 0\nmax 9\noom_kill 1\n",
            },
        )
    (proc / "7" / "cgroup").write_text(lines)
    for name, text in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text)
    assert machine._cpu_limit(7, proc) == {"periods": 50, "throttled": 25, "throttled_s": 2.0}
    memory = machine._memory(7, proc)
    assert (memory["memory_share"], memory["memory_hits"], memory["oom_kills"]) == (0.5, 9, 1)


def test_a_group_without_a_limit_has_the_machines_memory(tmp_path: Path) -> None:
    """And no limit of CPU."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text("0::/none-of-these\n")
    (tmp_path / "meminfo").write_text("MemTotal: 2048 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\n")
    assert machine._memory(7, tmp_path) == {"memory_share": 0.5, "memory_limit_mib": 2.0}


def test_threads_that_can_run_are_counted(tmp_path: Path) -> None:
    """Threads in state R, over the looks that are kept; empty before the first."""
    counter = RunnableThreads(2, tmp_path)
    assert counter.means() == ({}, None)
    for running in (9, 1, 2):
        (tmp_path / "loadavg").write_text(f"0 0 0 {running + 1}/99 1")
        for tid in range(3):
            folder = tmp_path / "5" / "task" / str(tid)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "stat").write_text(f"{tid} (x) {'R' if tid < running else 'S'} 1")
        counter.look((5,))
    assert counter.means() == ({5: 1.5}, 1.5)


def test_metrics_of_language_models_are_read_with_their_labels() -> None:
    """Gauges and counters; versions are added up, and of two caches the fuller one counts."""
    text = """tritonkit_llm_running{model="m",version="1"} 3
tritonkit_llm_running{model="m",version="2"} 1
tritonkit_llm_cache_usage{model="m",version="1"} 0.25
tritonkit_llm_cache_usage{model="m",version="2"} 0.75
tritonkit_llm_requests_total{model="m",outcome="refused",version="1"} 2
tritonkit_llm_steps_total{model="m",phase="decode",version="1"} 70
tritonkit_llm_between_tokens_seconds_bucket{le="0.05",model="m",version="1"} 5
tritonkit_llm_between_tokens_seconds_bucket{le="+Inf",model="m",version="1"} 6
tritonkit_llm_tokens_total{model="m",version="1"} 1e+02
"""
    (look,) = metrics_of(parse_samples(text)).language.values()
    assert look.gauges == {"running": 4.0, "cache_usage": 0.75}
    assert look.counters == {
        ("requests_total", "refused"): 2.0,
        ("steps_total", "decode"): 70.0,
        ("between_tokens_seconds_bucket", "0.05"): 5.0,
        ("between_tokens_seconds_bucket", "+Inf"): 6.0,
        ("tokens_total", ""): 100.0,
    }


def test_metrics_are_read_by_model() -> None:
    """Waiting and refused requests are read; versions are added up, other metrics ignored."""
    text = """# HELP nv_inference_pending_request_count x
nv_inference_pending_request_count{model="m",version="1"} 3
nv_inference_pending_request_count{model="m",version="2"} 4
nv_inference_request_failure{model="m",reason="REJECTED",version="1"} 5
nv_inference_request_failure{model="m",reason="OTHER",version="1"} 6
nv_cpu_utilization 0
"""
    metrics = metrics_of(parse_samples(text))
    assert (metrics.pending, metrics.rejected, metrics.language) == ({"m": 7.0}, {"m": 5.0}, {})
    with pytest.raises(OSError, match="refused"):
        read_metrics("127.0.0.1:1")
