"""The search for a way to serve a model that holds a latency target at the highest rate.

`space` has the choices, `candidates` those of a model on this machine, `server` a server whose way of serving changes
from trial to trial, `remote` one that runs already, `costs` the costs of runs on it, `search` the search, `ranking` its
order, `state` its results on disk, `apply` the choice in model.yaml.
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
