"""An ONNX Runtime session as the engine of a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backend_batch import RequestError, joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backend_batch import Arrays


@dataclass(frozen=True)
class Session:
    """A session, and the options of every run."""

    session: Any  # onnxruntime.InferenceSession
    run_options: Any = None  # onnxruntime.RunOptions

    def begin(self) -> None:
        """Nothing to do: every run gives arrays of its own."""

    def run(self, parts: Sequence[Arrays], outputs: Sequence[str]) -> Arrays:
        """Outputs by name for the parts joined along the first axis; RequestError if it fails."""
        try:
            values = self.session.run(outputs, joined(parts), self.run_options)
        except Exception as error:  # its classes are unrelated: Fail, InvalidArgument, RuntimeError
            raise RequestError(f"ONNX Runtime: {error}") from error
        return dict(zip(outputs, values, strict=True))
