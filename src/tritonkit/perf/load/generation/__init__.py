"""Load of language models: streams at a rate or of a number of users, with prompts and answers of drawn lengths.

from tritonkit.perf.load.generation import TextGenerator, TextTraffic, parse_lengths
from tritonkit.perf.load.openloop import OpenLoad

traffic = TextTraffic(parse_lengths("prompt", "sharegpt"), parse_lengths("output", "32-128"))
with TextGenerator("chat", ("127.0.0.1:8001",), traffic) as generator:
    report = generator.run(OpenLoad(rate_per_s=2, duration_s=30))
    report.ttft.at(99)  # ms
"""

from tritonkit.perf.load.generation.lengths import Lengths, Trace, parse_lengths, read_token_trace
from tritonkit.perf.load.generation.requests import TextTraffic
from tritonkit.perf.load.generation.results import GenerationReport, GenerationSecond, Spread
from tritonkit.perf.load.generation.run import ClosedLoad, TextGenerator
from tritonkit.perf.load.generation.target import is_language_model

__all__ = [
    "ClosedLoad",
    "GenerationReport",
    "GenerationSecond",
    "Lengths",
    "Spread",
    "TextGenerator",
    "TextTraffic",
    "Trace",
    "is_language_model",
    "parse_lengths",
    "read_token_trace",
]
