from __future__ import annotations

from layerscope.cli import output
from layerscope.cli.options import (
    AsJson,
    Blocks,
    Device,
    Dtype,
    Model,
    Norm,
    Part,
    Pickle,
    Revision,
    Trust,
    app,
)  # fmt: skip


@app.command(epilog="Example:  layerscope inspect google-t5/t5-small --part encoder")
def inspect(
    model: Model,
    revision: Revision = None,
    part: Part = None,
    blocks: Blocks = None,
    norm: Norm = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    trust_remote_code: Trust = False,
    allow_pickle: Pickle = False,
    as_json: AsJson = False,
) -> None:
    """Show what is found in a model: blocks, final norm, head, and what a run would take."""
    from dataclasses import asdict

    from layerscope.models.inspection import inspect as verb

    found = verb(
        model, revision=revision, part=part, blocks=blocks, norm=norm, dtype=dtype, device=device,
        trust_remote_code=trust_remote_code, allow_pickle=allow_pickle,
    )  # fmt: skip
    if as_json:
        output.as_json([asdict(entry) for entry in found])
        return
    from layerscope.show.terminal import show

    for entry in found:
        show(entry.document())
