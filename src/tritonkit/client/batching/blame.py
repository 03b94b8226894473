"""Which errors one item of a batch may have caused, and an error for each of several callers."""

from __future__ import annotations

from tritonkit.errors import InferenceError, InvalidInput, Overloaded

__all__ = ["again", "may_be_one_items"]


def may_be_one_items(error: Exception) -> bool:
    """Whether the batch without one item might have been answered.

    Not so for a full queue, a missing server or model, or a deadline: those concern every item,
    and the sender has already tried again as often as it may.
    """
    return isinstance(error, (InferenceError, InvalidInput)) and not isinstance(error, Overloaded)


def again(error: Exception) -> Exception:
    """The same error as an object of its own: raised in two threads, one would mix their traces.

    One that cannot be made again, or would not say the same, is given back itself.
    """
    kind = type(error)
    try:
        twin = kind.__new__(kind, *error.args)
        twin.__dict__.update(error.__dict__)
        twin.__cause__ = error.__cause__
        return twin if str(twin) == str(error) else error
    except Exception:
        return error
