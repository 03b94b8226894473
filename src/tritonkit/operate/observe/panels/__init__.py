"""All panels, in the order of a person's questions: does it work, how fast, why, and is the machine large enough."""

from tritonkit.operate.observe.panel import Panel, Section
from tritonkit.operate.observe.panels.batching import BATCHING
from tritonkit.operate.observe.panels.gateway import GATEWAY, KEYS
from tritonkit.operate.observe.panels.gpu import GPUS
from tritonkit.operate.observe.panels.language import LANGUAGE
from tritonkit.operate.observe.panels.latency import LATENCY
from tritonkit.operate.observe.panels.machine import MACHINE, REPLICAS
from tritonkit.operate.observe.panels.traffic import TRAFFIC

__all__ = ["PANELS", "SECTIONS"]

SECTIONS: tuple[Section, ...] = (TRAFFIC, LATENCY, LANGUAGE, BATCHING, REPLICAS, KEYS, GATEWAY, MACHINE, GPUS)
PANELS: tuple[Panel, ...] = tuple(panel for section in SECTIONS for panel in section.panels)
