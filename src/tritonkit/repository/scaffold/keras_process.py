"""Export a network of Keras to ONNX, in a process of its own, because Keras reads its backend when it is imported.

`python -m tritonkit.repository.scaffold.keras_process FILE FOLDER` writes into the folder (`exporting`).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.scaffold.exporting import hold_to_answers, made_up, refusing
from tritonkit.text import first_line

__all__ = ["export"]


def export(file: Path, target: Path) -> None:
    """Write the ONNX file of a network of Keras."""
    os.environ["KERAS_BACKEND"] = "torch"
    keras = need("keras", "keras")
    _export(keras, _loaded(keras, file), target)


def _loaded(keras: Any, file: Path) -> Any:
    try:
        model = keras.saving.load_model(file, compile=False, safe_mode=True)
    except Exception as error:  # of any class, by the layer
        raise BuildError(
            "",
            found=f"Keras {keras.__version__} cannot load it: {first_line(error)}",
            wanted="a network with layers of Keras alone, which run on PyTorch",
            todo="save it again with Keras 3: model.save('FILE.keras')",
        ) from error
    if not getattr(model, "inputs", None):
        raise BuildError(
            "",
            found=f"a {type(model).__name__} whose inputs are not known",
            wanted="a Functional or a Sequential model with keras.Input",
            todo="add keras.Input, and save it again",
        )
    return model


def _export(keras: Any, model: Any, target: Path) -> None:
    """Write the ONNX file by the first way whose file gives Keras's answers.

    BuildError if there is none.
    """
    tensors = [(tuple(tensor.shape), str(tensor.dtype)) for tensor in model.inputs]
    expected = [(given, _answers(keras, model, given)) for given in made_up(tensors)]
    failed = []
    ways: Sequence[Callable[..., None]] = (_by_torch_export, _by_keras)
    for way in ways:
        target.unlink(missing_ok=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                way(keras, model, expected[-1][0], target)
            hold_to_answers(target, expected, "Keras")
        except Exception as error:  # of any class, by the layer
            failed.append(f"{way.__doc__}: {first_line(error)}")
            continue
        return
    target.unlink(missing_ok=True)
    raise BuildError(
        "",
        found=f"Keras {keras.__version__} cannot export it to ONNX: {failed[-1]}",
        wanted="layers that PyTorch's exporters know, at every size of a free axis",
        todo="give keras.Input fixed sizes (recurrent layers need a fixed length), or replace the layer",
        details="\n".join(failed),
    )


def _by_torch_export(keras: Any, model: Any, given: Sequence[Any], target: Path) -> None:
    """torch.export"""
    torch = need("torch", "build")

    base: Any = torch.nn.Module

    class Flat(base):  # type: ignore[misc]  # torch comes in through `need`
        """The model with tensors by position, however it nests them."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            outputs = keras.tree.flatten(self.model(_nested(keras, model, tensors), training=False))
            return tuple(outputs) if len(outputs) > 1 else outputs[0]

    free = torch.export.Dim.DYNAMIC
    axes = tuple({place: free for place, size in enumerate(t.shape) if size is None} for t in model.inputs)
    torch.onnx.export(
        Flat().eval(),
        tuple(map(torch.from_numpy, given)),
        str(target),
        dynamo=True,
        dynamic_shapes=(axes,),
        external_data=False,
        input_names=[tensor.name for tensor in model.inputs],
        output_names=_output_names(model),
        verbose=False,
    )


def _by_keras(keras: Any, model: Any, given: Sequence[Any], target: Path) -> None:
    """Keras's own exporter"""
    model(_nested(keras, model, given))  # it refuses a model that was never called
    model.export(str(target), format="onnx", verbose=False)


def _output_names(model: Any) -> list[str]:
    """Names of the layers that give the outputs."""
    names = getattr(model, "output_names", None) or [model.layers[-1].name]
    taken = {tensor.name for tensor in model.inputs}
    return [
        f"{name}_out" if name in taken else name if names.count(name) == 1 else f"{name}_{place}"
        for place, name in enumerate(names)
    ]


def _nested(keras: Any, model: Any, tensors: Sequence[Any]) -> Any:
    """Inputs by position in the structure that the model takes."""
    if isinstance(model, keras.Sequential):
        return tensors[0]
    return keras.tree.pack_sequence_as(model._inputs_struct, list(tensors))


def _answers(keras: Any, model: Any, given: Sequence[Any]) -> list[Any]:
    import numpy as np

    answers = model.predict_on_batch(_nested(keras, model, given))
    return [np.asarray(answer) for answer in keras.tree.flatten(answers)]


if __name__ == "__main__":
    refusing(export, Path(sys.argv[1]), Path(sys.argv[2]))
