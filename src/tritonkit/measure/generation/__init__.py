"""Load of language models: streams at a rate or of so many users, with prompts and answers of drawn lengths.

from tritonkit.measure.generation import TextGenerator, Traffic, parse_lengths
from tritonkit.measure.openloop import OpenLoad

traffic = Traffic(parse_lengths("prompt", "sharegpt"), parse_lengths("output", "32-128"))
with TextGenerator("chat", ("127.0.0.1:8001",), traffic) as generator:
    report = generator.run(OpenLoad(rate_per_s=2, duration_s=30))
    report.ttft.at(99)  # ms
"""

from tritonkit.measure.generation.lengths import Lengths, Trace, parse_lengths, read_token_trace
from tritonkit.measure.generation.requests import Traffic
from tritonkit.measure.generation.results import GenerationReport, GenerationSecond, Spread
from tritonkit.measure.generation.run import ClosedLoad, TextGenerator
from tritonkit.measure.generation.target import is_language_model

__all__ = [
    "ClosedLoad",
    "GenerationReport",
    "GenerationSecond",
    "Lengths",
    "Spread",
    "TextGenerator",
    "Trace",
    "Traffic",
    "is_language_model",
    "parse_lengths",
    "read_token_trace",
]
