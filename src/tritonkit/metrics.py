"""Names of metrics, labels and scrape jobs for measurements, panels and alerts: a rename is one edit here."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ALL_DURATION",
    "BAD_CODES",
    "CACHE_HITS",
    "CACHE_MISSES",
    "CANCELED",
    "COMPUTE_INFER",
    "COMPUTE_INPUT",
    "COMPUTE_OUTPUT",
    "CPU_SHARE",
    "DISK_FREE",
    "DISK_SIZE",
    "EXECUTIONS",
    "GATEWAY_ACTIVE",
    "GATEWAY_CERTIFICATE_DAYS",
    "GATEWAY_CODES",
    "GATEWAY_EJECTED",
    "GATEWAY_HEALTHY",
    "GATEWAY_JOB",
    "GATEWAY_MEMBERS",
    "GATEWAY_MS",
    "GATEWAY_REQUESTS",
    "GATEWAY_RETRIES",
    "GATEWAY_TLS_ERRORS",
    "GATEWAY_UNDECIDED",
    "GATEWAY_UNWRITTEN",
    "GPU_ENERGY",
    "GPU_MEMORY_TOTAL",
    "GPU_MEMORY_USED",
    "GPU_POWER",
    "GPU_POWER_LIMIT",
    "GPU_SHARE",
    "GPU_UUID",
    "INFERENCES",
    "LLM_BETWEEN_S",
    "LLM_CACHE",
    "LLM_FIRST_S",
    "LLM_PREEMPTIONS",
    "LLM_PROMPT_TOKENS",
    "LLM_REFUSED",
    "LLM_REQUESTS",
    "LLM_RUNNING",
    "LLM_STALLED",
    "LLM_STEPS",
    "LLM_STEP_S",
    "LLM_TOKENS",
    "LLM_WAITING",
    "MAX_BATCH_SIZE",
    "MEMORY_TOTAL",
    "MEMORY_USED",
    "PENDING",
    "QUEUE_DURATION",
    "REFUSED_CODES",
    "REQUESTS_FAILED",
    "REQUESTS_OK",
    "SHARED_MEMORY_FREE",
    "SHARED_MEMORY_SIZE",
    "STUB_DEATHS",
    "STUB_UP",
    "TRITON_JOB",
    "UP",
]

TRITON_JOB: Final = "triton"
"""One instance for each replica: Triton's metrics, and tritonkit's gauges at their end (`serve/core/gauges.py`)."""
GATEWAY_JOB: Final = "gateway"
"""The gateway's metrics: Envoy's /stats/prometheus."""

UP: Final = "up"
"""Prometheus' own metric: whether the last scrape of an instance was answered."""

# Triton's, for each model and version (docs/user_guide/metrics.md in triton-inference-server/server). A request may
# hold several inferences; an execution is one run of a batch. Durations are counters of microseconds.
REQUESTS_OK: Final = "nv_inference_request_success"
REQUESTS_FAILED: Final = "nv_inference_request_failure"
CANCELED: Final = 'reason!="CANCELED"'
"""Selector that leaves out requests that their caller gave up."""
INFERENCES: Final = "nv_inference_count"
EXECUTIONS: Final = "nv_inference_exec_count"
PENDING: Final = "nv_inference_pending_request_count"
ALL_DURATION: Final = "nv_inference_request_duration_us"
QUEUE_DURATION: Final = "nv_inference_queue_duration_us"
COMPUTE_INPUT: Final = "nv_inference_compute_input_duration_us"
COMPUTE_INFER: Final = "nv_inference_compute_infer_duration_us"
COMPUTE_OUTPUT: Final = "nv_inference_compute_output_duration_us"
CACHE_HITS: Final = "nv_cache_num_hits_per_model"
CACHE_MISSES: Final = "nv_cache_num_misses_per_model"

# Triton's, of the machine: shares from 0 to 1, bytes, watts, and joules since the server started. It reads GPUs every
# two seconds by default, and reports 0 until it has read them.
CPU_SHARE: Final = "nv_cpu_utilization"
MEMORY_USED: Final = "nv_cpu_memory_used_bytes"
MEMORY_TOTAL: Final = "nv_cpu_memory_total_bytes"
GPU_SHARE: Final = "nv_gpu_utilization"
GPU_MEMORY_USED: Final = "nv_gpu_memory_used_bytes"
GPU_MEMORY_TOTAL: Final = "nv_gpu_memory_total_bytes"
GPU_POWER: Final = "nv_gpu_power_usage"
GPU_POWER_LIMIT: Final = "nv_gpu_power_limit"
GPU_ENERGY: Final = "nv_energy_consumption"
GPU_UUID: Final = "gpu_uuid"
"""The label of each GPU's metrics."""

# tritonkit's, of `tritonkit serve` and of the container.
MAX_BATCH_SIZE: Final = "tritonkit_max_batch_size"
STUB_UP: Final = "tritonkit_stub_up"
STUB_DEATHS: Final = "tritonkit_stub_deaths_total"
SHARED_MEMORY_FREE: Final = "tritonkit_shared_memory_free_bytes"
SHARED_MEMORY_SIZE: Final = "tritonkit_shared_memory_size_bytes"
DISK_FREE: Final = "tritonkit_disk_free_bytes"
DISK_SIZE: Final = "tritonkit_disk_size_bytes"

# Those of the backend `llm`, for each model and version (`llm_metrics.py` there): histograms of seconds, counters, and
# gauges of sequences; the cache's is a share from 0 to 1.
LLM_FIRST_S: Final = "tritonkit_llm_first_token_seconds"
LLM_BETWEEN_S: Final = "tritonkit_llm_between_tokens_seconds"
LLM_TOKENS: Final = "tritonkit_llm_tokens_total"
LLM_PROMPT_TOKENS: Final = "tritonkit_llm_prompt_tokens_total"
LLM_RUNNING: Final = "tritonkit_llm_running"
LLM_WAITING: Final = "tritonkit_llm_waiting"
LLM_STALLED: Final = "tritonkit_llm_stalled"
LLM_CACHE: Final = "tritonkit_llm_cache_usage"
LLM_PREEMPTIONS: Final = "tritonkit_llm_preemptions_total"
LLM_STEPS: Final = "tritonkit_llm_steps_total"
LLM_STEP_S: Final = "tritonkit_llm_step_seconds_total"
LLM_REQUESTS: Final = "tritonkit_llm_requests_total"
LLM_REFUSED: Final = 'outcome="refused"'
"""Requests for which there was no room to wait."""

# The gateway's, for each model and key: a histogram from a request's last byte to its answer's first, and a counter
# by code. Not in it: requests that were never sent whole, streams whose callers speak on while they are answered.
# The code of a gRPC call may be its status' name, or HTTP's 200 with the status in another label.
GATEWAY_MS: Final = "envoy_gateway_request_ms"
GATEWAY_REQUESTS: Final = "envoy_gateway_requests"
GATEWAY_CODES: Final = "code, grpc_status"
_BAD: Final = "UNKNOWN|DEADLINE_EXCEEDED|INTERNAL|UNAVAILABLE|DATA_LOSS"
BAD_CODES: Final = (f'code=~"{_BAD}|5.."', f'grpc_status=~"{_BAD}"')
"""Selectors of the service's own faults, by either label; callers' errors, cancellations and excess are not faults."""
_REFUSED: Final = "RESOURCE_EXHAUSTED|UNAUTHENTICATED|PERMISSION_DENIED"
REFUSED_CODES: Final = (f'code=~"{_REFUSED}|401|403|429"', f'grpc_status=~"{_REFUSED}"')

# Envoy's own.
GATEWAY_ACTIVE: Final = "envoy_cluster_upstream_rq_active"
GATEWAY_HEALTHY: Final = "envoy_cluster_membership_healthy"
GATEWAY_MEMBERS: Final = "envoy_cluster_membership_total"
GATEWAY_EJECTED: Final = "envoy_cluster_outlier_detection_ejections_active"
GATEWAY_RETRIES: Final = "envoy_cluster_upstream_rq_retry"
GATEWAY_TLS_ERRORS: Final = "envoy_listener_ssl_connection_error"
GATEWAY_UNDECIDED: Final = "envoy_cluster_ratelimit_failure_mode_allowed"
"""Requests that passed because the service of shared rates gave no decision."""
GATEWAY_UNWRITTEN: Final = "envoy_filesystem_write_failed"
"""Failed writes of the gateway's logs, including the audit log."""
GATEWAY_CERTIFICATE_DAYS: Final = "envoy_server_days_until_first_cert_expiring"
