"""Rules about servers from their callers' point of view: the network between, and one server that differs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from tritonkit.perf.diagnose.evidence import Evidence, ServerEvidence
from tritonkit.perf.diagnose.finding import Finding

__all__ = ["bad_replica", "network_or_client"]

_LEAST_MS, _TIMES = 20.0, 3.0
_FAILED = 0.1
_WAY_MS, _WAY_SHARE = 5.0, 0.5


def bad_replica(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """One of several servers does not answer while another does, fails a tenth of its requests while others
    do not, or takes three times as long as the median of the others, and 20 ms longer."""
    if len(evidence.servers) < 2:
        return
    for server in evidence.servers:
        others = [other for other in evidence.servers if other is not server]
        evidence_lines = _worse(server, others)
        if evidence_lines:
            yield Finding(
                "bad-replica",
                server.address,
                1 / len(evidence.servers),
                evidence_lines,
                "take it out of the callers' list and start it again; the client avoids such a server by"
                " itself (Client(..., breaker=, hedge=))",
                f"1 of {len(evidence.servers)} requests no longer meets it, if callers take turns",
            )


def _worse(server: ServerEvidence, others: list[ServerEvidence]) -> tuple[str, ...]:
    if server.error and any(not other.error for other in others):
        return (f"it does not answer ({server.error}); {_count(others)} do",)
    ours, theirs = _failing(server), max(_failing(other) for other in others)
    if ours >= _FAILED and theirs < _FAILED / 2:
        why = f": {server.probe_errors[0]}" if server.probe_errors else ""
        return (f"{ours:.0%} of its requests fail, of the others' {theirs:.0%}{why}",)
    for what, mine, of_others in (
        ("our requests take", server.probe_ms, [other.probe_ms for other in others]),
        ("requests are in it for", server.server_ms, [other.server_ms for other in others]),
    ):
        times = [ms for ms in of_others if ms is not None]
        if mine is None or not times:
            continue
        usual = statistics.median(times)
        if mine >= _TIMES * usual and mine - usual >= _LEAST_MS:
            return (f"{what} {mine:.1f} ms, with the others {usual:.1f} ms",)
    return ()


def _failing(server: ServerEvidence) -> float:
    failed = sum(model.failed for model in server.entries)
    done = failed + server.rate_per_s * server.seconds
    counted = failed / done if done else 0.0
    return max(counted, len(server.probe_errors) / server.probes if server.probes else 0.0)


def _count(others: list[ServerEvidence]) -> str:
    return f"{sum(not other.error for other in others)} of {len(others)} others"


def network_or_client(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """Half of a caller's wait, and 5 ms or more, is spent outside of the server: in the network, timed with calls that
    run no model, or in this process' own checks and encoding.

    On one machine such a call takes under 1 ms, within a data center about the same.
    """
    for server in evidence.servers:
        trip, inside = server.trip_ms, server.server_ms or server.first_token_ms or 0.0
        if trip is not None and trip >= _WAY_MS and trip >= _WAY_SHARE * (trip + inside):
            yield Finding(
                "network-or-client",
                server.address,
                trip / (trip + inside),
                (
                    f"a call that runs no model takes {trip:.1f} ms there and back",
                    f"requests spend {inside:.1f} ms in the server",
                ),
                "call from nearer, keep connections open, and look for a proxy on the way; several requests at a time"
                " or a batch in one share the round trip",
                f"{trip:.1f} of {trip + inside:.1f} ms are the network's: this much less from the server's own machine",
            )
        own, whole = server.own_ms, server.probe_ms
        if own is not None and whole and own >= _WAY_MS and own >= _WAY_SHARE * whole:
            yield Finding(
                "network-or-client",
                server.address,
                own / whole,
                (f"of {whole:.1f} ms a request spends {own:.1f} ms in the client, before sending and after",),
                "allow more concurrent requests (the client's `limit`), and use more processes if threads wait"
                " for each other; send the model's own dtype, and large arrays through shared memory",
                f"{own:.1f} of {whole:.1f} ms, by the client's own clock",
            )
