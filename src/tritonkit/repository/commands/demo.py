"""`tritonkit demo`: the shipped models built, served and called with real input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tritonkit.cli.options import Root, project_folder
from tritonkit.cli.output import print_line, print_table
from tritonkit.cli.started import started
from tritonkit.repository.commands.build import print_build

if TYPE_CHECKING:
    from tritonkit.client import Client
    from tritonkit.repository.modelspec import Spec

__all__ = ["command"]

MODELS = ("digits", "sentences")
IMAGES = 12
SENTENCES = (
    "The central bank raised interest rates by a quarter of a point.",
    "Preheat the oven and bake the bread for forty minutes.",
    "Her serve won the final set of the tennis match.",
    "The new phone's battery lasts two full days.",
    "Heavy rain flooded several streets of the old town.",
    "The spacecraft entered orbit around Mars this morning.",
)
QUERY = "A probe has arrived at the red planet."


def command(root: Root = None) -> None:
    """Build the shipped models, start Triton, send it real input, stop.

    Example: tritonkit demo
    """
    from tritonkit.cli.progress import Announcing
    from tritonkit.client import Client
    from tritonkit.repository.modelspec import load_all
    from tritonkit.repository.pipeline import build_repository

    project = project_folder(root)
    repository = build_repository(project, MODELS, progress=Announcing())
    print_build(repository)
    with started(project, repository.path, MODELS) as endpoint:
        print_line(f"\nTriton is ready after {endpoint.ready_s:.1f} s: gRPC at {endpoint.grpc}\n")
        with Client(endpoint.grpc) as client:
            digits, _ = load_all(project, MODELS)
            show_digits(client, digits)
            print_line()
            show_search(client)
    print_line("\nTriton has stopped.")


def show_digits(client: Client, spec: Spec) -> None:
    """Twelve images of the held-out fifth, one request each."""
    from tritonkit.repository.export import load_hook

    images: list[tuple[bytes, str]] = load_hook(spec, "data:held_out_images", "demo")(IMAGES)
    model = client.model("digits")
    rows = []
    for number, (png, label) in enumerate(images, start=1):
        reply = model.predict(image=png)
        best = reply["label"][0, 0].decode()
        verdict = "right" if best == label else "wrong"
        rows.append([str(number), label, best, f"{reply['score'][0, 0]:.4f}", verdict])
    print_table("Held-out digits", ["image", "label", "predicted", "score", ""], rows)


def show_search(client: Client) -> None:
    """Six sentences in one batch, ranked by their cosine to a query."""
    model = client.model("sentences")
    vectors = model.predict(text=list(SENTENCES))["embedding"]
    query = model.predict(text=QUERY)["embedding"][0]
    # Embeddings have length 1: their product is the cosine.
    ranked: list[tuple[Any, str]] = sorted(zip(vectors @ query, SENTENCES, strict=True), reverse=True)
    print_table(f"Nearest to: {QUERY}", ["cosine", "sentence"], [[f"{c:.3f}", text] for c, text in ranked])
