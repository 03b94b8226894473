"""Queries of panels (gateway, GPU, cache, language model), run by promtool on series with known answers."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.operate.observe.test_alerts import promtool
from tritonkit.operate.observe import PANELS, Chosen

pytestmark = pytest.mark.needs("promtool")

_G = 'job="gateway",instance="g:1"'
_T = 'job="triton",instance="a:8002"'
_L = f'{_T},model="net",version="1"'
_OF = f'{_G},model="net",key="k"'
SERIES = {
    # Of 100 requests a second 90 took at most 10 ms, 98 at most 20, all at most 30.
    f'envoy_gateway_request_ms_bucket{{{_OF},le="10"}}': "0+5400x10",
    f'envoy_gateway_request_ms_bucket{{{_OF},le="20"}}': "0+5880x10",
    f'envoy_gateway_request_ms_bucket{{{_OF},le="30"}}': "0+6000x10",
    f'envoy_gateway_request_ms_bucket{{{_OF},le="+Inf"}}': "0+6000x10",
    f"envoy_gateway_request_ms_sum{{{_OF}}}": "0+48000x10",
    f"envoy_gateway_request_ms_count{{{_OF}}}": "0+6000x10",
    f'envoy_gateway_requests{{{_OF},code="200",grpc_status="OK"}}': "0+5400x10",
    f'envoy_gateway_requests{{{_OF},code="200",grpc_status="UNAVAILABLE"}}': "0+300x10",
    f'envoy_gateway_requests{{{_OF},code="503",grpc_status="UNAVAILABLE"}}': "0+60x10",
    f'envoy_gateway_requests{{{_OF},code="429",grpc_status="-"}}': "0+240x10",
    f'envoy_cluster_upstream_rq_active{{{_G},envoy_cluster_name="triton"}}': "7+0x10",
    f'envoy_cluster_upstream_rq_retry{{{_G},envoy_cluster_name="triton"}}': "0+60x10",
    f'envoy_listener_ssl_connection_error{{{_G},envoy_listener_address="[::]:8443"}}': "0+6x10",
    f"envoy_server_days_until_first_cert_expiring{{{_G}}}": "30+0x10",
    f'nv_gpu_utilization{{{_T},gpu_uuid="GPU-1"}}': "0.5+0x10",
    f'nv_gpu_memory_used_bytes{{{_T},gpu_uuid="GPU-1"}}': "20+0x10",
    f'nv_gpu_memory_total_bytes{{{_T},gpu_uuid="GPU-1"}}': "80+0x10",
    # 600 J a second, and 4 requests a second; copies take as long as the network.
    f'nv_energy_consumption{{{_T},gpu_uuid="GPU-1"}}': "0+36000x10",
    f'nv_gpu_power_usage{{{_T},gpu_uuid="GPU-1"}}': "577+0x10",
    f'nv_inference_compute_input_duration_us{{{_T},model="net",version="1"}}': "0+200000x10",
    f'nv_inference_compute_output_duration_us{{{_T},model="net",version="1"}}': "0+100000x10",
    f'nv_cache_num_hits_per_model{{{_T},model="net",version="1"}}': "0+180x10",
    f'nv_cache_num_misses_per_model{{{_T},model="net",version="1"}}': "0+60x10",
    f'nv_inference_request_success{{{_T},model="net",version="1"}}': "0+240x10",
    f'nv_inference_compute_infer_duration_us{{{_T},model="net",version="1"}}': "0+300000x10",
    # Of 10 answers a second 6 began within a second, and all within two and a half.
    f'tritonkit_llm_first_token_seconds_bucket{{{_L},le="1.0"}}': "0+360x10",
    f'tritonkit_llm_first_token_seconds_bucket{{{_L},le="2.5"}}': "0+600x10",
    f'tritonkit_llm_first_token_seconds_bucket{{{_L},le="+Inf"}}': "0+600x10",
    f"tritonkit_llm_tokens_total{{{_L}}}": "0+1200x10",
    f"tritonkit_llm_cache_usage{{{_L}}}": "0.25+0x10",
    f"tritonkit_llm_running{{{_L}}}": "3+0x10",
    f'tritonkit_llm_requests_total{{{_L},outcome="stop"}}': "0+60x10",
    f'tritonkit_llm_requests_total{{{_L},outcome="refused"}}': "0+0x10",
    f'tritonkit_llm_steps_total{{{_L},phase="decode"}}': "0+600x10",
    f'tritonkit_llm_step_seconds_total{{{_L},phase="decode"}}': "0+12x10",
}
KNOWN = {
    "latency-p95": {'{model="net"}': 16.25},
    "latency-p99": {'{model="net"}': 25},
    "latency-gateway-mean": {'{model="net"}': 8},
    "gateway-traffic": {
        '{code="200", grpc_status="OK"}': 90,
        '{code="200", grpc_status="UNAVAILABLE"}': 5,
        '{code="429", grpc_status="-"}': 4,
        '{code="503", grpc_status="UNAVAILABLE"}': 1,
    },
    "errors": {'{model="net"}': 6},
    "key-traffic": {'{key="k"}': 100},
    "key-errors": {'{key="k"}': 6},
    "key-refused": {'{key="k"}': 4},
    "key-latency": {'{key="k"}': 16.25},
    "gateway-active": {'{envoy_cluster_name="triton"}': 7},
    "gateway-retries": {'{envoy_cluster_name="triton"}': 1},
    "gateway-tls": {'{envoy_listener_address="[::]:8443"}': 0.1},
    "gateway-certificate": {'{instance="g:1"}': 30},
    "gpu": {'{gpu_uuid="GPU-1", instance="a:8002", job="triton"}': 50},
    "gpu-memory": {'{gpu_uuid="GPU-1", instance="a:8002", job="triton"}': 25},
    "gpu-memory-free": {'{gpu_uuid="GPU-1", instance="a:8002", job="triton"}': 60},
    "gpu-power": {'{gpu_uuid="GPU-1", instance="a:8002", job="triton"}': 577},
    "gpu-copies": {'{instance="a:8002", model="net"}': 50},
    "gpu-energy": {'{instance="a:8002"}': 150},
    "cache-hits": {'{model="net"}': 75},
    # Of 4 requests a second the cache answered 3; the other took 5 ms.
    "run-time": {'{model="net"}': 5},
    "llm-first-token": {'{model="net"}': 833.333},
    "llm-tokens": {'{model="net"}': 20},
    "llm-sequences": {'{model="net"}': 3},
    "llm-cache": {'{instance="a:8002", model="net"}': 25},
    "llm-outcomes": {'{model="net", outcome="stop"}': 1},
    "llm-steps": {'{model="net", phase="decode"}': 20},
}


def test_queries_give_what_is_known(tmp_path: Path) -> None:
    """Percentiles within a bucket, shares of failures by either label, each request counted once."""
    panels = {panel.name: panel for panel in PANELS}
    tests_of_queries = [
        {
            "expr": f"round({Chosen().filled(panels[name].queries[0].expr, 300)}, 0.001)",
            "eval_time": "10m",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
        }
        for name, samples in KNOWN.items()
    ]
    series = [{"series": name, "values": values} for name, values in SERIES.items()]
    file = tmp_path / "test.yml"
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": tests_of_queries}]
    file.write_text(yaml.safe_dump({"tests": tests}))
    promtool("test", "rules", str(file))
