"""Write rendered text and artifacts into a repository that Triton loads: staged, synced, exchanged in one step."""

from tritonkit.repository.publish.copies import copy_models, replace_models
from tritonkit.repository.publish.current import Change
from tritonkit.repository.publish.integrity import Damage, Verifier, verify, versions
from tritonkit.repository.publish.publish import recover

__all__ = ["Change", "Damage", "Verifier", "copy_models", "recover", "replace_models", "verify", "versions"]
