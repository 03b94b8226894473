"""Finding how a model is to be served so that it holds a latency target at the highest rate.

`space` is what can be chosen, `server` a server that is served in another way from trial to trial, `remote` one that
runs already, `costs` what runs take on it, `search` the search, `state` what it knows on disk, `apply` the choice in
model.yaml.
"""

from tritonkit.perf.simulation import Costs, Simulated, SimulatedBatcher, fit, highest_rate, simulate
from tritonkit.perf.tune.apply import changed_text, difference
from tritonkit.perf.tune.at_rate import SearchAtRate
from tritonkit.perf.tune.client_batching import ClientBatching, best_client_batching
from tritonkit.perf.tune.objective import Objective
from tritonkit.perf.tune.outcome import Evaluation, Listener, Outcome
from tritonkit.perf.tune.remote import Remote
from tritonkit.perf.tune.search import Search
from tritonkit.perf.tune.server import Embedded, Gone, Served
from tritonkit.perf.tune.space import InstanceGroup, Point, Space, current, other_buckets, space_of, tuned
from tritonkit.perf.tune.state import Known, load_state, save_state, state_file

__all__ = [
    "ClientBatching",
    "Costs",
    "Embedded",
    "Evaluation",
    "Gone",
    "InstanceGroup",
    "Known",
    "Listener",
    "Objective",
    "Outcome",
    "Point",
    "Remote",
    "Search",
    "SearchAtRate",
    "Served",
    "Simulated",
    "SimulatedBatcher",
    "Space",
    "best_client_batching",
    "changed_text",
    "current",
    "difference",
    "fit",
    "highest_rate",
    "load_state",
    "other_buckets",
    "save_state",
    "simulate",
    "space_of",
    "state_file",
    "tuned",
]
