"""Inputs and outputs of a PyTorch module as plain tensors: inputs by position or name, nested outputs flattened."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tritonkit.extras import need

__all__ = ["Found", "adapted", "flatten", "keywords_of", "wants_other_values", "wrapper_text"]

_CACHES = ("past_key_values", "past_key_value", "mems", "cache_params")
"""Outputs that hold the state of a generation, under transformers' names."""


@dataclasses.dataclass(frozen=True)
class Found:
    """The tensors of an output by their names, and what was left out and why."""

    tensors: dict[str, Any]
    left_out: tuple[str, ...] = ()
    has_keys: bool = False
    """Whether the names are the module's own, and not positions."""

    def chosen(self, names: Sequence[str]) -> list[str]:
        """The tensors that the spec's names stand for: the tensors of those names, else all in their order."""
        return list(names) if self.has_keys and set(names) <= set(self.tensors) else list(self.tensors)


def flatten(value: Any) -> Found:
    """The tensors inside of dataclasses, dictionaries, tuples and lists, in their order.

    A name is the path to the tensor: `boxes`, `scores_0`; without a path, `output_0`. None, caches and everything else
    that is not a tensor are left out.
    """
    tensor = need("torch", "build").Tensor
    tensors: dict[str, Any] = {}
    left_out: list[str] = []
    for path, leaf in _leaves(value, (), tensor):
        name = "_".join(path) or "output_0"
        name = f"output_{name}" if name[0].isdecimal() else name
        if isinstance(leaf, tensor):
            tensors[name if name not in tensors else f"{name}_{len(tensors)}"] = leaf
        else:
            what = "None" if leaf is None else f"of the type {type(leaf).__name__}"
            left_out.append(f"output {name.removeprefix('output_')} is {what}, and left out")
    has_keys = bool(_parts(value)) and not str(_parts(value)[0][0]).isdecimal()
    return Found(tensors, tuple(left_out), has_keys)


def _leaves(value: Any, path: tuple[str, ...], tensor: type) -> Iterator[tuple[tuple[str, ...], Any]]:
    if path and path[-1] in _CACHES and not isinstance(value, tensor):
        yield path, value
        return
    for key, inner in _parts(value):
        yield from _leaves(inner, (*path, str(key)), tensor)
    if _parts(value) == () and not _is_container(value):
        yield path, value


def _is_container(value: Any) -> bool:
    return isinstance(value, Mapping | tuple | list) or _is_dataclass(value)


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _parts(value: Any) -> tuple[tuple[Any, Any], ...]:
    """The values of a container; transformers' outputs are mappings that leave None out."""
    if isinstance(value, Mapping):
        return tuple(value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(zip(value._fields, value, strict=True))
    if isinstance(value, tuple | list):
        return tuple(enumerate(value))
    if _is_dataclass(value):
        return tuple((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    return ()


def keywords_of(module: Any, names: Sequence[str]) -> bool:
    """Whether inputs are to be passed by name: forward has all of them, but some are keyword-only or come after
    optional ones that are left out."""
    parameters = _parameters(module)
    places = {parameter.name: place for place, parameter in enumerate(parameters)}
    any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    if any_name and not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        rest = [name for name in names if name not in places]
        if rest and all(_is_optional(p) for p in parameters if p.name not in names):
            return True
    if not set(names) <= set(places):
        return False
    order = [places[name] for name in names]
    required = [p.name for p in parameters if not _is_optional(p) and p.name not in names]
    by_name_alone = any(parameters[place].kind is inspect.Parameter.KEYWORD_ONLY for place in order)
    return not required and order == sorted(order) and (by_name_alone or order != list(range(len(order))))


def _parameters(module: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):  # compiled: no names are known
        return []


def _is_optional(parameter: inspect.Parameter) -> bool:
    return parameter.default is not parameter.empty or parameter.kind in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )


def adapted(
    module: Any, inputs: Sequence[str], outputs: Sequence[str], example: Sequence[Any]
) -> tuple[Any, tuple[str, ...]]:
    """The module itself if it takes and returns plain tensors, else a wrapper that does; and notes.

    Args:
        outputs: the spec's names for the outputs. Outputs that the module names the same are chosen by name, others
            by their order.
        example: tensors to run the module on once.
    """
    torch = need("torch", "build")
    by_name = keywords_of(module, inputs)
    call = _caller(module, inputs) if by_name else module
    with torch.no_grad():
        value = call(*example)
    values = flatten(value)
    plain = isinstance(value, torch.Tensor) or (
        isinstance(value, tuple | list | dict)
        and not hasattr(value, "_fields")
        and all(isinstance(part, torch.Tensor) for _, part in _parts(value))
    )
    chosen = values.chosen(outputs)
    in_order = plain and not by_name and chosen == list(values.tensors)
    if in_order or not values.tensors:
        return module, ()
    return _wrapped(torch, module, call, inputs, chosen), values.left_out


def _caller(module: Any, inputs: Sequence[str]) -> Callable[..., Any]:
    return lambda *values: module(**dict(zip(inputs, values, strict=True)))


def _wrapped(torch: Any, module: Any, call: Callable[..., Any], inputs: Sequence[str], outputs: list[str]) -> Any:
    class Plain(torch.nn.Module):  # type: ignore[misc]  # torch comes in through `need`
        """Takes tensors by position and gives a tuple of tensors."""

        def __init__(self) -> None:
            super().__init__()
            self.network = module

        def forward(self, *values: Any) -> Any:
            network = _caller(self.network, inputs) if call is not module else self.network
            tensors = flatten(network(*values)).tensors
            return tuple(tensors[name] for name in outputs)

    # torch.export takes shapes by parameter: one for each input.
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [f"input_{place}" for place in range(len(inputs))]
    Plain.forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in ("self", *names)]
    )
    return Plain().train(module.training)


def wrapper_text(module: Any, inputs: Sequence[str], hook: str) -> str:
    """Code of a wrapper to start from, for a module that does not take plain tensors; `hook` is its
    `module:factory`."""
    file, _, factory = hook.partition(":")
    taken = ", ".join(_described(parameter) for parameter in _parameters(module))
    parameters = [parameter for parameter in _parameters(module) if not _is_optional(parameter)]
    names = [*inputs, *["..."] * (len(parameters) - len(inputs))]
    given = [_written(name, parameter) for name, parameter in zip(names, parameters, strict=False)] or list(inputs)
    return f"""# forward({taken}) takes other values than the tensors {", ".join(inputs)}. In {file}.py:
class Wrapped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.network = {factory}()

    def forward(self, {", ".join(inputs)}):
        # Make what the network takes of the tensors, and return tensors. A list of one item, [x[0]], is for
        # serving: {{max_batch_size: 0}}, with an axis of size 1 in front.
        return self.network({", ".join(given)})

def wrapped():
    return Wrapped().eval()"""


def _written(name: str, parameter: inspect.Parameter) -> str:
    """The wrapper's text for one argument of the network, in the form that forward's annotation requires."""
    kind = str(parameter.annotation).lower()
    if any(word in kind for word in ("list[", "tuple[", "sequence[")):
        value = f"[{name}[0]]"
    elif any(word in kind for word in ("dict[", "mapping[")):
        value = f'{{"{name}": {name}}}'
    else:
        value = name
    return f"{parameter.name}={value}" if parameter.kind is parameter.KEYWORD_ONLY else value


def _described(parameter: inspect.Parameter) -> str:
    return str(parameter).partition(" = ")[0]


def wants_other_values(module: Any, inputs: Sequence[str]) -> bool:
    """Whether forward declares an input as a list, a dictionary or the like, or requires an input that is not given."""
    parameters = _parameters(module)
    named = {parameter.name for parameter in parameters}
    for place, parameter in enumerate(parameters):
        given = parameter.name in inputs or (place < len(inputs) and not set(inputs) <= named)
        text = str(parameter.annotation).lower()
        if given and any(word in text for word in ("list[", "dict[", "tuple[", "sequence[", "mapping[")):
            return True
        if not given and not _is_optional(parameter):
            return True
    return False
