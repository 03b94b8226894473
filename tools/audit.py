"""Known vulnerabilities of the packages in environments: `python tools/audit.py [ENVIRONMENT]...`

pip-audit reports "no known vulnerabilities" even if the index has no advisories, and most mirrors have none. So each
service is first asked about an old release with well-known vulnerabilities; its answer counts only if it names them.
The exit code is 1 for findings alone. Environments that could not be checked are named.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CANARY = "jinja2==2.4.1"  # CVE-2014-0012 and later ones
SERVICES = ("pypi", "osv")
ACCEPTED: dict[str, str] = {}
"""Advisory -> the reason why it does no harm here, and the change that would make it harmful."""
_TIMEOUT_S = 600


def audit(program: list[str], environments: list[Path]) -> int:
    """Print the findings, and the environments that were not checked; 1 where there is a vulnerability, else 0.

    Args:
        program: the words that start pip-audit.
        environments: folders of virtual environments.
    """
    service = next((name for name in SERVICES if _believable(program, name)), None)
    if service is None:
        print("NOT CHECKED for known vulnerabilities: " + ", ".join(map(str, environments)))
        print(f"  no service answers with advisories: asked {' and '.join(SERVICES)} about {CANARY}")
        print("  do: run `make audit` where the advisories of PyPI or OSV can be reached")
        return 0
    vulnerabilities = 0
    for environment in environments:
        packages = next(environment.glob("lib/python3*/site-packages"), environment)
        ignored = [word for name in ACCEPTED for word in ("--ignore-vuln", name)]
        answer = _ask(program, service, ["--path", str(packages), *ignored])
        if answer is None:
            print(f"NOT CHECKED for known vulnerabilities: {environment}: {service} broke off")
            continue
        vulnerabilities += _tell(environment, service, answer)
    return 1 if vulnerabilities else 0


def _believable(program: list[str], service: str) -> bool:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(f"{CANARY}\n")
        file.flush()
        answer = _ask(program, service, ["--no-deps", "--disable-pip", "--requirement", file.name])
    return bool(answer) and any(package.get("vulns") for package in answer)


def _ask(program: list[str], service: str, what: list[str]) -> list[dict[str, Any]] | None:
    """Ask pip-audit about each package; None where the service did not answer."""
    words = ["--vulnerability-service", service, "--format", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run(
            [*program, *words, *what], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return None
    return packages


def _tell(environment: Path, service: str, packages: list[dict[str, Any]]) -> int:
    """Print the vulnerabilities of an environment; return their number."""
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    checked = len(packages) - len(skipped)
    findings = [(package, flaw) for package in packages for flaw in package.get("vulns", ())]
    print(f"{environment}: {checked} packages checked by {service}, {len(findings)} vulnerabilities")
    for package, flaw in findings:
        names = ", ".join([flaw["id"], *flaw.get("aliases", ())])
        fixed = ", ".join(flaw.get("fix_versions", ())) or "no release"
        print(f"  {package['name']} {package['version']}: {names}; fixed in {fixed}")
    if skipped:
        print(f"  NOT CHECKED, unknown to {service}: {', '.join(skipped)}")
    return len(findings)


if __name__ == "__main__":
    places = [Path(word) for word in sys.argv[1:]] or [Path(".venv"), Path(".venv-server")]
    sys.exit(audit([sys.executable, "-m", "pip_audit"], places))
