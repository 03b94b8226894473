"""A model as a function of AWS Lambda, without Triton: a folder from which docker builds its image.

`bundle` says what is in it, `packages` what its Python imports; `write` writes the folder or compares it.
"""

from tritonkit.operate.deploy.serverless.bundle import Bundle, bundle, chosen_variant, only_model
from tritonkit.operate.deploy.serverless.write import compare_bundle, write_bundle

__all__ = ["Bundle", "bundle", "chosen_variant", "compare_bundle", "only_model", "write_bundle"]
