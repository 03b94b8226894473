"""The bottleneck of running servers: its name, the evidence, the change to make and the gain to expect.

from tritonkit.perf.diagnose import Watcher, diagnose, evidence_of

with Watcher(["127.0.0.1:8001"], "digits") as observer:
    observer.wait(5)
    diagnosis = diagnose(evidence_of(observer.observation()))
diagnosis.verdict  # "queue-delay-too-long", or "healthy"
diagnosis.findings[0].evidence
"""

from tritonkit.perf.diagnose.calls import CallLog
from tritonkit.perf.diagnose.evidence import Evidence, ModelEvidence, ServerEvidence, evidence_of
from tritonkit.perf.diagnose.finding import HEALTHY, Diagnosis, Finding
from tritonkit.perf.diagnose.independence import BatchingCheck, Coupling, check_batching
from tritonkit.perf.diagnose.language_evidence import LanguageEvidence
from tritonkit.perf.diagnose.observe import Watcher, plain_inputs
from tritonkit.perf.diagnose.own_python import prove_own_python
from tritonkit.perf.diagnose.rules import RULES, TARGET_MS, diagnose
from tritonkit.perf.diagnose.snapshot import LanguageFacts, Look, MachineLook, ModelFacts, Observation, Probe

__all__ = [
    "HEALTHY",
    "RULES",
    "TARGET_MS",
    "BatchingCheck",
    "CallLog",
    "Coupling",
    "Diagnosis",
    "Evidence",
    "Finding",
    "LanguageEvidence",
    "LanguageFacts",
    "Look",
    "MachineLook",
    "ModelEvidence",
    "ModelFacts",
    "Observation",
    "Probe",
    "ServerEvidence",
    "Watcher",
    "check_batching",
    "diagnose",
    "evidence_of",
    "plain_inputs",
    "prove_own_python",
]
