"""From rendered text and artifacts to a repository that Triton loads: staged, synced, exchanged in one step."""

from tritonkit.publish.integrity import Finding, Verifier, verify, versions
from tritonkit.publish.publish import Change, recover

__all__ = ["Change", "Finding", "Verifier", "recover", "verify", "versions"]
