"""The same repository on Kubernetes: a Kustomize tree whose numbers come from the repository.

`values` is what a person decides, `facts` what the repository needs; `tree` renders `templates/` from both and
writes or compares the files.
"""

from tritonkit.operate.deploy.facts import Facts, read_facts
from tritonkit.operate.deploy.tree import Changes, compare, render_tree, write_tree
from tritonkit.operate.deploy.values import FILE, Values, read_values

__all__ = ["FILE", "Changes", "Facts", "Values", "compare", "read_facts", "read_values", "render_tree", "write_tree"]
