"""A report of a build: every variant's figures on one page without other files.

    from tritonkit.repository.report import collect, render, this_machine

    machine = this_machine(cores=2)
    reports = collect(root, ("digits",), threads=machine.cores)
    Path("report.html").write_text(render(reports, machine, "today"), encoding="utf-8")

`collect` reads the cache and builds nothing; `render` writes HTML without a script, a font or an address to fetch from.
"""

from tritonkit.repository.report.collect import ModelReport, collect
from tritonkit.repository.report.graph import PipelineGraph
from tritonkit.repository.report.operators import Operators
from tritonkit.repository.report.page import Machine, render, this_machine

__all__ = ["Machine", "ModelReport", "Operators", "PipelineGraph", "collect", "render", "this_machine"]
