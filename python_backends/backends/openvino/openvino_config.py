"""The options of OpenVINO in a model's configuration, read as Triton's native backend reads it.

Source of every rule here: README.md, `src/openvino.cc` (ParseParameters, ValidateInputs, ValidateOutputs) and
`src/openvino_utils.cc` (CompareDimsSupported) of triton-inference-server/openvino_backend. A configuration that the
native backend refuses is refused here too. Parameters that it does not know are ignored, as there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backend_config import ModelError, cores, is_batched, text_parameter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HINTS = ("LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT")
PRECISION = "INFERENCE_PRECISION_HINT"
PRECISIONS = ("f32", "bf16", "f16")
DEFAULT_PRECISION = "f32"
"""Without a hint OpenVINO computes in bfloat16 wherever the processor can: an answer would depend on the machine,
and on what is computed in the same batch."""
ALONE = "tritonkit.threads_alone"


def model_file(folder: Path, version: str, config: Mapping[str, Any]) -> Path:
    """The network of a version: `default_model_filename`, else `model.xml` with `model.bin`.

    Other formats that OpenVINO reads itself (ONNX, a TensorFlow saved model) are named by that field too.
    """
    path = folder / version / (config.get("default_model_filename") or "model.xml")
    if not path.exists():
        raise ModelError(f"no file {path}; wanted the OpenVINO model of version {version}")
    return path


def check_device(config: Mapping[str, Any]) -> None:
    """Refuse a device that only the native backend, in an image with its drivers, can have."""
    device = text_parameter(config, "TARGET_DEVICE").upper()
    if device not in ("", "CPU"):
        raise ModelError(
            f"parameter TARGET_DEVICE: found {device}, wanted CPU: this stand-in of the openvino"
            " backend has no other device"
        )


def is_yes(config: Mapping[str, Any], key: str) -> bool:
    """A switch; the native backend reads any text other than YES as no."""
    return text_parameter(config, key).lower() == "yes"


def pads_batches(config: Mapping[str, Any]) -> bool:
    """Whether batches below `max_batch_size` are answered; without it the native backend fails on them."""
    return not is_batched(config) or is_yes(config, "ENABLE_BATCH_PADDING")


def batch_sizes(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Sizes to compile for: one item, each preferred batch, the largest; none without a batch."""
    if not is_batched(config):
        return ()
    largest = int(config["max_batch_size"])
    preferred = config.get("dynamic_batching", {}).get("preferred_batch_size", [])
    return tuple(sorted({1, *(int(size) for size in preferred if int(size) <= largest), largest}))


def properties(config: Mapping[str, Any], of_file: str = DEFAULT_PRECISION) -> dict[str, Any]:
    """OpenVINO's properties for the `parameters` of a configuration.

    In the native backend the instances of a model share one set of threads and streams. Here each is a process with its
    own part. If a lone run may have all cores, the part is up to twice as large, because a process does not see the
    runs of others.

    Args:
        of_file: the precision that the network's file requests, if the configuration requests none.
    """
    instances = _instances(config)
    threads = _number(config, "INFERENCE_NUM_THREADS") or cores()
    share = max(1, threads // instances)
    chosen: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": max(share, min(_number(config, ALONE), 2 * share)),
        # Processes that pin their threads independently would all take the first cores.
        "ENABLE_CPU_PINNING": False,
    }
    if compiling := _number(config, "COMPILATION_NUM_THREADS"):
        chosen["COMPILATION_NUM_THREADS"] = compiling
    if streams := _streams(config, instances):
        chosen["NUM_STREAMS"] = streams
    if hint := text_parameter(config, "PERFORMANCE_HINT").upper():
        if hint not in HINTS:
            raise _unfit("PERFORMANCE_HINT", hint, "/".join(HINTS))
        chosen["PERFORMANCE_HINT"] = hint
    chosen[PRECISION] = _precision(config) or of_file
    return chosen


def _precision(config: Mapping[str, Any]) -> str:
    """The precision that the configuration requests; empty for none."""
    half, precision = text_parameter(config, "HINT_BF16"), text_parameter(config, PRECISION).lower()
    if half and half.lower() != "yes":
        raise _unfit("HINT_BF16", half, "YES")
    if precision not in ("", *PRECISIONS):
        raise _unfit(PRECISION, precision, "/".join(PRECISIONS))
    if half and precision not in ("", "bf16"):
        raise _unfit(PRECISION, precision, "bf16 as HINT_BF16 says, or one of the two alone")
    return "bf16" if half else precision


def _instances(config: Mapping[str, Any]) -> int:
    groups = config.get("instance_group", [])
    counts = (int(group.get("count", 1)) for group in groups if not group.get("passive"))
    return max(1, sum(counts))


def _streams(config: Mapping[str, Any], instances: int) -> str:
    text = text_parameter(config, "NUM_STREAMS").upper()
    if text in ("AUTO", "NUMA"):
        return text if instances == 1 else "1"
    if text and not text.isdecimal():
        raise _unfit("NUM_STREAMS", text, "either AUTO/NUMA/<int_value>")
    return str(max(1, int(text) // instances)) if text else ""


def _number(config: Mapping[str, Any], key: str) -> int:
    text = text_parameter(config, key)
    if text and not text.isdecimal():
        raise _unfit(key, text, "a non-negative number")
    return int(text or 0)


def _unfit(key: str, found: str, wanted: str) -> ModelError:
    return ModelError(f"parameter {key}: found '{found}', wanted {wanted}")
