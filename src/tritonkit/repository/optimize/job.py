"""A job: the trained network, its ONNX file and its data, from which all variants of one network are made."""

from __future__ import annotations

import copy
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.adapted import adapted_copy
from tritonkit.repository.export.artifact import Artifact, Independence, Signature
from tritonkit.repository.export.batching import DECLARED, demand, hold_to_demand
from tritonkit.repository.export.checkpoint import Checkpoint
from tritonkit.repository.export.closeness import Yardstick
from tritonkit.repository.export.coupling import judge_neighbors
from tritonkit.repository.export.filled import filled_copy
from tritonkit.repository.export.language import Texts, read_texts
from tritonkit.repository.export.made_up import NO_HINTS, Hints, make_up, within
from tritonkit.repository.export.number_format import is_quantized, read_number_format
from tritonkit.repository.export.onnx_file import (
    batch_axis_missing,
    check_against_spec,
    check_file,
    open_session,
    read_signature,
    run_session,
)
from tritonkit.repository.export.probe import advise, find_hints
from tritonkit.repository.export.proof import prove_network, prove_variant
from tritonkit.repository.export.ready.prepared import PreparedSamples
from tritonkit.repository.export.samples import (
    Batch,
    each_item,
    first_items,
    hook_training,
    read_calibration,
    read_samples,
)
from tritonkit.repository.export.torch_module import as_plain
from tritonkit.repository.modelspec import Spec, resolve_file
from tritonkit.repository.optimize.checkpoint_source import find_checkpoint
from tritonkit.repository.optimize.files.ready import fixed_first_axis
from tritonkit.repository.optimize.quality import Reference
from tritonkit.repository.optimize.weights import WeightCache, load_teacher, load_trained

if TYPE_CHECKING:
    from tritonkit.repository.optimize.files.ready import ReadyFile

__all__ = ["Job"]


class Job:
    """A spec from which variants are made. Everything is made once, on first use.

    Args:
        base: a function that returns the FP32 ONNX artifact of this job's network, built if need be.
        find_base: a function that returns the same artifact if it is built already, else None.
        threads: cores the measurements may use.
        say: a function that is called with short phrases about what is being done.
        transform: a function that makes another network from the spec's, with notes. This job's variants are made
            from it.
        open_ready: a function that opens the file of a spec with `network.file`.
    """

    def __init__(
        self,
        spec: Spec,
        weights: WeightCache,
        base: Callable[[], Artifact],
        *,
        find_base: Callable[[], Artifact | None] = lambda: None,
        threads: int = 1,
        say: Callable[[str], None] = lambda _: None,
        transform: Callable[[Job], tuple[Any, tuple[str, ...]]] | None = None,
        open_ready: Callable[[Spec], ReadyFile] | None = None,
    ) -> None:
        self.spec = spec
        self.threads = threads
        self.say = say
        self._weights = weights
        self.notes: tuple[str, ...] = ()
        """Notes of the transform."""
        self.left_out: tuple[str, ...] = ()
        """Outputs of the PyTorch module that are not tensors, each with a reason."""
        self._base = base
        self._find_base = find_base
        self._independence: Independence | None = None
        self._given: dict[Signature, PreparedSamples] = {}
        self._transform = transform
        self._open_ready = open_ready

    @cached_property
    def batched(self) -> bool:
        """Whether axis 0 of every tensor holds items, rather than parts that belong together, such as time."""
        network, demanded = self.spec.model.network, demand(self.spec.model.serving)
        if network.file is not None and demanded != "none":
            if (base := self._made_base()) is not None:
                return base.signature.batched or base.signature.single
            if (verdict := fixed_first_axis(self.spec, self.ready)) is not None:
                self._independence = verdict
            return verdict is None
        if demanded == "none" or network.onnx is None or demanded == "declared":
            return demanded != "none"
        if (base := self._made_base()) is not None:
            return base.signature.batched or base.signature.single
        return self._file_has_items()

    @property
    def one_by_one(self) -> bool:
        """Whether the network gets one item at a time: its items are not independent, and no batch is demanded."""
        independence = self.independence
        return (
            self.batched
            and independence is not None
            and not independence.holds
            and demand(self.spec.model.serving) == "open"
        )

    @property
    def independence(self) -> Independence | None:
        """Verdict on the FP32 network's items in a batch; None before they were tried, and without a batch axis."""
        if self._independence is None and (base := self._made_base()) is not None:
            self._independence = base.independence
        return self._independence

    def settle(self, independence: Independence) -> None:
        """Keep the verdict on the FP32 network's items, which decides how later variants are made and measured."""
        self._independence = independence
        self.__dict__.pop("samples", None)

    def prove(self, run: Callable[[Batch], Batch], file: Path) -> Independence:
        """Verdict on the items of a batch in a network that `run` runs; `file` is its ONNX file, if it has one."""
        if demand(self.spec.model.serving) == "declared":
            return DECLARED
        return self._proven(self.signature, run, file)

    def prove_again(self, run: Callable[[Batch], Batch]) -> Independence:
        """The same verdict, from fewer batches, on a lossless variant of a network whose items are independent."""
        return prove_variant(self.spec, self.samples, run, self.onnx)

    def _proven(self, signature: Signature, run: Callable[[Batch], Batch], file: Path) -> Independence:
        self.say("proving that items are independent")
        hints = self._hints_for(signature)
        prepared = self._prepared_for(signature, hints)
        most = self.ready.most_items if self.spec.model.network.file else 0
        verdict = prove_network(self.spec, signature, prepared.batches, hints, run, file, most)
        if verdict.state == "coupled" and is_quantized(self.number_format):
            return self._judged(run, prepared.batches, prepared, verdict.seen)
        return verdict

    def prove_rounded(self, run: Callable[[Batch], Batch]) -> Independence:
        """The same verdict on a variant with rounded numbers, made from a network whose items are independent.

        Kernels for another batch size may round differently, so the test is how an outlier changes other answers.
        """
        if demand(self.spec.model.serving) == "declared":
            return DECLARED
        return self._judged(run, self.samples, self.prepared)

    def _judged(
        self, run: Callable[[Batch], Batch], samples: list[Batch], prepared: PreparedSamples, seen: str = ""
    ) -> Independence:
        self.say("measuring what an outlier does to the other items")
        return judge_neighbors(self.spec, run, samples, seen, prepared)

    def _made_base(self) -> Artifact | None:
        return self.base if "base" in self.__dict__ else self._known_base

    @cached_property
    def _known_base(self) -> Artifact | None:
        return self._find_base()

    def _file_has_items(self) -> bool:
        """Whether the first axes of a user's ONNX file are free and hold independent items.

        If the items are not independent, a request takes all rows, unless the spec's shapes or steps show that rows
        are items.
        """
        where = f"{self.spec.file} network.onnx"
        model = check_file(self.source, where)
        if (missing := batch_axis_missing(model)) and demand(self.spec.model.serving) == "open":
            self._independence = Independence("fixed", missing)
            return False
        signature = check_against_spec(read_signature(model, where, batched=True), self.spec, self.source.name)
        session = open_session(self.source, where)
        try:
            verdict = self._proven(signature, lambda b: run_session(session, b, where), self.source)
        except BuildError as error:
            if self._for_one_item:
                verdict = Independence("fixed", error.found)
            elif demand(self.spec.model.serving) != "open" or not self._runs_whole(model, where):
                raise
            else:
                self._independence = Independence("unknown", f"one item alone does not run: {error.found}")
                return False
        if self._for_one_item and not verdict.holds:
            verdict = Independence("fixed", f"the file was exported for one item, and with two: {verdict.seen}")
        hold_to_demand(self.spec, verdict, self.source.name)
        self._independence = verdict
        network = self.spec.model.network
        says_items = bool(network.inputs or network.outputs or self.spec.steps or self.spec.entry)
        return verdict.holds or says_items or demand(self.spec.model.serving) != "open"

    @cached_property
    def ready(self) -> ReadyFile:
        """The file of `network.file`."""
        if self._open_ready is None:
            raise ValueError("this job opens no ready-made files")
        return self._open_ready(self.spec)

    def _runs_whole(self, model: Any, where: str) -> bool:
        """Whether the network runs at some size of its first axis, though not with one item."""
        try:
            self._hints_for(read_signature(model, where, batched=False))
        except BuildError:
            return False
        return not self.has_samples

    @cached_property
    def base(self) -> Artifact:
        """The network as an FP32 ONNX artifact, checked against its reference."""
        return self._base()

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The folder from which a language model's variants are made."""
        cache = self._weights
        return find_checkpoint(self.spec, cache.folder, fresh=cache.fresh, say=self.say)

    @cached_property
    def texts(self) -> Texts:
        """Held-out texts of a language model, only for measuring."""
        return read_texts(self.spec, self.checkpoint)

    @property
    def onnx(self) -> Path:
        """The file of the FP32 ONNX artifact."""
        return self.base.folder / "model.onnx"

    @cached_property
    def signature(self) -> Signature:
        """Inputs and outputs of the user's file, else those that the spec declares."""
        if self.spec.model.network.torch is not None:
            return Signature.declared(self.spec)
        if self.spec.model.network.file is not None:
            return self.ready.signature(self.batched)
        return self.signature_in(self.source)

    def signature_in(self, file: Path) -> Signature:
        """Inputs and outputs of an ONNX file of this network, checked against the spec."""
        torch = self.spec.model.network.torch is not None
        where = f"{self.spec.file} network.{'torch' if torch else 'onnx'}"
        signature = read_signature(check_file(file, where), where, self.batched)
        name = "the exported file" if torch else self.source.name
        return check_against_spec(signature, self.spec, name)

    @property
    def source(self) -> Path:
        """The user's ONNX file, or a copy with the spec's sizes, which fills the inputs of `network.fill` itself."""
        return self._adapted[0]

    @property
    def _for_one_item(self) -> bool:
        """Whether the user's ONNX file was exported for one item."""
        return self._adapted[1]

    @cached_property
    def _adapted(self) -> tuple[Path, bool]:
        network = self.spec.model.network
        if network.onnx is None:
            raise ValueError("the network of this spec is not an ONNX file")
        source = resolve_file(network.onnx, self.spec, "network.onnx")
        if not (network.fill or network.inputs):
            return source, False
        folder = Path(tempfile.mkdtemp(prefix="tritonkit-"))
        weakref.finalize(self, shutil.rmtree, folder, True)  # it is there as long as this job
        if network.fill:
            source = filled_copy(self.spec, source, folder)
        if not network.inputs:
            return source, False
        return adapted_copy(source, self.spec, folder, f"{self.spec.file} network.onnx")

    @cached_property
    def number_format(self) -> str:
        """Number format of a user's ONNX file if it is not FP32; else empty."""
        return "" if self.spec.model.network.onnx is None else read_number_format(self.source)

    def module(self) -> Any:
        """A new copy of the network as a torch.nn.Module in evaluation mode; it is trained once and then read back.

        BuildError for a spec that has an ONNX file instead.
        """
        self._need_torch()
        if self._transform is not None:
            return copy.deepcopy(self._transformed_module)
        return self._plain(load_trained(self.spec, self._weights, self.say))

    def _plain(self, module: Any) -> Any:
        """The module with only tensors as inputs and outputs; outputs that it leaves out are noted."""
        with self.advised():
            plain, notes = as_plain(self.spec, module, first_items(self.samples[:1], 2, self.batched)[0])
        self.left_out = notes
        return plain

    @cached_property
    def _transformed_module(self) -> Any:
        assert self._transform is not None  # noqa: S101  the caller has looked
        module, self.notes = self._transform(self)
        return module

    def teacher(self) -> Any:
        """The module that smaller ones are made from: `optimize.teacher`, else the network itself."""
        self._need_torch()
        if self.spec.model.optimize.teacher is None:
            return self._plain(load_trained(self.spec, self._weights, self.say))
        return load_teacher(self.spec, self._weights, self.say)

    @cached_property
    def example(self) -> Batch:
        """Input of 3 items and long free axes for tracing: torch.export takes sizes of 0 and 1 for constants."""
        return make_up(self.spec, self.signature, 3, largest=True)

    @cached_property
    def samples(self) -> list[Batch]:
        """Held-out input, only for measuring; seeded made-up input if the spec names none. With `one_by_one`, each item
        is a batch of its own."""
        given = self._samples_for(self.signature, self.hints)
        return each_item(given) if self.one_by_one else given

    @property
    def prepared(self) -> PreparedSamples:
        """The samples with everything that metrics need of their items."""
        return self._prepared_for(self.signature, self.hints)

    def _samples_for(self, signature: Signature, hints: Hints) -> list[Batch]:
        return self._prepared_for(signature, hints).batches

    def _prepared_for(self, signature: Signature, hints: Hints) -> PreparedSamples:
        """The samples in the layout of a signature; they are read, or made by the folder's Python, once."""
        if signature not in self._given:
            self._given[signature] = read_samples(self.spec, signature, hints)
        return self._given[signature]

    def items(self, count: int) -> Batch:
        """At most `count` items for one run: from the samples if the spec names some, else made up."""
        if self.has_samples:
            return first_items(self.samples[:1], count, self.batched)[0]
        return make_up(self.spec, self.signature, count, largest=True, hints=self.hints)

    @property
    def known_samples(self) -> list[Batch]:
        """`samples` if they were read already, else none, because reading them runs Python of the model's folder."""
        return list(self.__dict__.get("samples", ()))

    @property
    def has_samples(self) -> bool:
        """Whether the spec names real input; made-up input shows less, and fails more often."""
        return self.spec.model.quality.samples is not None

    @cached_property
    def hints(self) -> Hints:
        """Facts that made-up input needs; empty if there are samples, or no ONNX file."""
        return self._hints_for(self.signature)

    def _hints_for(self, signature: Signature) -> Hints:
        if self.spec.model.network.file and not self.has_samples:
            return within(self.ready.ranges)
        if self.has_samples or self.spec.model.network.onnx is None:
            return NO_HINTS
        where = f"{self.spec.file} network.onnx"
        model = need("onnx", "build").load(self.source, load_external_data=False)
        session = cache(lambda: open_session(self.source, where, optimized=False))
        with self.advised(signature):
            return find_hints(self.spec, signature, model, lambda batch: run_session(session(), batch, where))

    @contextmanager
    def advised(self, signature: Signature | None = None) -> Iterator[None]:
        """Add the keys that describe an input to the error of a network that fails on made-up input."""
        try:
            yield
        except BuildError as error:
            # Only errors of the engine or the module count, not those of checks on its outputs.
            if error.__cause__ is not None and not self.has_samples:
                advise(error, self.spec, signature or self.signature)
            raise

    @cached_property
    def reference(self) -> Reference:
        """Outputs of the unchanged network for the samples."""
        return Reference.of(self)

    @property
    def transformed(self) -> bool:
        """Whether a transform changed the spec's network; it is then compared with the teacher."""
        return self._transform is not None

    @cached_property
    def calibration(self) -> list[Batch]:
        """Real input to find ranges and choose layers with, which is never the held-out samples."""
        given = read_calibration(self.spec, self.signature)
        return each_item(given) if self.one_by_one else given

    @cached_property
    def training(self) -> list[tuple[Batch, Any]]:
        """Batches with their targets (an array, or None) for the variants that train."""
        return hook_training(self.spec, self.signature)

    def closeness(self, run: Callable[[Batch], Batch]) -> float:
        """Closeness, by `yardstick`, of a network's outputs to the FP32 ones on the calibration batches."""
        outputs = [run(batch) for batch in self.calibration]
        return self.yardstick.mean(outputs, self._calibration_outputs)

    @cached_property
    def yardstick(self) -> Yardstick:
        """The measure behind `closeness`."""
        return self.yardstick_for(self._calibration_outputs)

    def yardstick_for(self, reference: list[Batch]) -> Yardstick:
        """The same measure for other outputs of the network."""
        return Yardstick.of(self.spec.model.quality.metric is not None, reference, self.batched)

    @cached_property
    def _calibration_outputs(self) -> list[Batch]:
        where = f"{self.spec.file} optimize.calibration"
        session = open_session(self.onnx, where)
        return [run_session(session, batch, where) for batch in self.calibration]

    def _need_torch(self) -> None:
        if self.spec.model.network.torch is None:
            raise BuildError(
                f"{self.spec.file} network",
                found="an ONNX file, which cannot be trained",
                wanted="network.torch for this variant",
                todo="choose a variant made from ONNX, such as onnx-int8-static or openvino-int8",
            )
