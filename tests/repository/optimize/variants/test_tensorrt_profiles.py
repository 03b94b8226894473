"""The sizes a plan is built for: from the batching and the free axes of a spec."""

from __future__ import annotations

import pytest

from tests.conftest import WriteModel
from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import Artifact, Signature, TensorInfo
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.variants.tensorrt_profiles import Range, largest_batch, profiles
from tritonkit.repository.render.batching import plan_max_batch_size

TEXT = """
name: net
network:
  onnx: net.onnx
  inputs:
    ids: {{dtype: INT64, shape: [length]}}
    scale: {{dtype: FP32, shape: [3]}}
  free_axes: {{length: {{min: 2, max: 256{warm}}}}}
serving: {{{serving}}}
"""
IDS = TensorInfo("ids", "INT64", (-1,), ("length",))
SCALE = TensorInfo("scale", "FP32", (3,), ("",))
BATCHED = Signature((IDS, SCALE), (), batched=True)


def spec_of(write_model: WriteModel, serving: str = "", warm: str = "") -> Spec:
    """A spec with a free axis, served as said."""
    text = TEXT.format(serving=serving, warm=warm and f", warm: {warm}")
    return write_model(text, net__onnx=b"")


def test_each_preferred_batch_size_has_a_profile(write_model: WriteModel) -> None:
    """From 1 to max_batch_size, fastest at each preferred size once, in rising order."""
    serving = "max_batch_size: 32, dynamic_batching: {preferred_batch_size: [16, 4, 16]}"
    made = profiles(spec_of(write_model, serving), BATCHED)
    assert [profile["scale"] for profile in made] == [Range((1, 3), (4, 3), (32, 3)), Range((1, 3), (16, 3), (32, 3))]


def test_without_a_preferred_size_full_batches_are_fastest(write_model: WriteModel) -> None:
    """One profile, whose best size is the largest."""
    (profile,) = profiles(spec_of(write_model, "max_batch_size: 8"), BATCHED)
    assert profile["scale"] == Range((1, 3), (8, 3), (8, 3))


def test_the_oldest_strategy_prefers_sizes_too(write_model: WriteModel) -> None:
    """Preferred sizes of sequence batching make profiles as those of dynamic batching do."""
    oldest = "oldest: {max_candidate_sequences: 4, preferred_batch_size: [2]}"
    serving = f"max_batch_size: 4, sequence_batching: {{{oldest}}}"
    (profile,) = profiles(spec_of(write_model, serving), BATCHED)
    assert profile["scale"].opt == (2, 3)


@pytest.mark.parametrize(("warm", "best"), [("", 256), ("[128, 16, 64]", 64)])
def test_a_free_axis_goes_from_min_to_max(write_model: WriteModel, warm: str, best: int) -> None:
    """It is fastest in the middle of the warm sizes, or at its largest where none is named."""
    (profile,) = profiles(spec_of(write_model, "max_batch_size: 4", warm), BATCHED)
    assert profile["ids"] == Range((1, 2), (4, best), (4, 256))


def test_a_network_of_one_size_needs_no_profile(write_model: WriteModel) -> None:
    """Without batch and free axis there is nothing to choose; with a free axis alone there is."""
    spec = spec_of(write_model, "max_batch_size: 0")
    assert profiles(spec, Signature((SCALE,), (), batched=False)) == ()
    (profile,) = profiles(spec, Signature((IDS,), (), batched=False))
    assert profile == {"ids": Range((2,), (256,), (256,))}


def test_a_free_axis_without_sizes_is_refused(write_model: WriteModel) -> None:
    """The message names the input and where to say its sizes."""
    signature = Signature((TensorInfo("x", "FP32", (-1,), ("width",)),), (), batched=True)
    with pytest.raises(BuildError, match=r"axis 0 of input x \(width\)") as caught:
        profiles(spec_of(write_model), signature)
    assert "network.free_axes" in caught.value.where


@pytest.mark.parametrize("serving", ["", "max_batch_size: 5", "dynamic_batching: {preferred_batch_size: [8, 200]}"])
def test_the_largest_batch_is_the_one_that_is_rendered(write_model: WriteModel, serving: str) -> None:
    """Triton refuses a plan whose profiles end below the configured max_batch_size."""
    spec = spec_of(write_model, serving)
    artifact = Artifact("net", "tensorrt-fp16", spec.folder, {"model.plan": ""}, BATCHED, None, "", {})
    assert largest_batch(spec.model.serving) == plan_max_batch_size(spec, artifact)
