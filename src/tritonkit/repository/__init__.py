"""From a `model.yaml` to a model repository that Triton reads.

`pipeline` runs a build from left to right: `modelspec` reads the file, `export` makes the reference artifact,
`optimize` its variants, `report` compares them, `render` writes their configuration, and `publish` puts everything
in place. `scaffold` writes a new model's folder, `inspection` describes a network's file.
"""

__all__: list[str] = []
