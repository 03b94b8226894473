"""The next version of a model under a part of the traffic, then under all of it; or back.

from tritonkit.operate.release import Terms, parse_rules, release

release(root, "digits", Terms((5.0, 25.0, 100.0), parse_rules("p99>20ms,errors>0.1%")))
"""

from tritonkit.operate.release.rules import DEFAULT, Rule, choose_rules, parse_percent, parse_rules, parse_steps
from tritonkit.operate.release.run import Released, release, rollback
from tritonkit.operate.release.steps import ReleaseStep, ReleaseTerms, Status

__all__ = [
    "DEFAULT",
    "ReleaseStep",
    "ReleaseTerms",
    "Released",
    "Rule",
    "Status",
    "choose_rules",
    "parse_percent",
    "parse_rules",
    "parse_steps",
    "release",
    "rollback",
]
