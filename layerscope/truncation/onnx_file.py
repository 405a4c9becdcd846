"""A truncated model as one ONNX file: exported, run by onnxruntime on several lengths, and compared."""

import copy
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerscope.core import LayerscopeError, require
from layerscope.models import accepts, setting
from layerscope.truncation.checkpoint import save_processors, shortened
from layerscope.truncation.mixing import MixedLayers
from layerscope.truncation.source import Source

FILE = "model.onnx"
SENTENCE = "sentence_embedding"
CLOSE = 1e-4
"""Tolerance between onnxruntime and torch in float32."""
AXES = ("batch", "sequence")
"""What the axes of any size are called; pictures and sounds have the first alone."""
LENGTHS = (1, 3, 2)
"""Batches of this many samples are compared, of texts each of another length."""


class Exported(nn.Module):
    """A model as a function of positional tensors: what the tokenizer gives, in its order."""

    def __init__(
        self,
        model: nn.Module,
        after: nn.Module | None,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
    ) -> None:
        super().__init__()
        self.model = model
        self.after = after
        self.inputs = inputs
        self.outputs = outputs
        self.options: dict[str, Any] = {}
        if accepts(model, "use_cache"):
            self.options["use_cache"] = False

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the named outputs: of the model, or of what follows it in a SentenceTransformer."""
        named = dict(zip(self.inputs, tensors, strict=True))
        output: Mapping[str, Tensor] = self.model(**named, **self.options)
        if self.after is not None:
            states, *_ = output.values()
            output = self.after({**named, "token_embeddings": states})
        return tuple(output[name] for name in self.outputs)


def write_onnx(source: Source, built: Any, kept: Sequence[int], folder: Path) -> float:
    """Export the model that was built, with its tokenizer; return how far onnxruntime's numbers are from torch's."""
    exported = export(source, built, kept, folder)
    save_processors(source, folder)
    session = _session(folder)
    largest = 0.0
    device = next(exported.parameters()).device
    for start, samples in enumerate(LENGTHS):
        encoded = _batch(source, samples, start)
        batch = {name: encoded[name] for name in exported.inputs}
        inputs = session.get_inputs()
        arrays = {entry.name: batch[entry.name].cpu().numpy() for entry in inputs}
        try:
            outputs = session.run(None, arrays)
        except Exception as error:
            first, *_ = batch.values()
            shape = "×".join(map(str, first.shape))
            raise LayerscopeError(
                f"the ONNX file of {source.name} does not run on a batch of {shape} ({type(error).__name__}): "
                "nothing was written"
            ) from error
        with torch.inference_mode():
            references = exported(*(tensor.to(device) for tensor in batch.values()))
        mask = batch.get("attention_mask")
        for output, reference in zip(outputs, references, strict=True):
            deviation = _deviation(output, reference.cpu().numpy(), mask)
            largest = max(largest, deviation)
        if largest > CLOSE:
            raise LayerscopeError(
                f"onnxruntime and torch give different numbers for {source.name} (by {largest:.1e}): nothing was "
                f"written"
            )
    return largest


def export(source: Source, built: Any, kept: Sequence[int], folder: Path) -> Exported:
    """Export the model that was built of the blocks kept, in float32."""
    require("onnx", "the format onnx")
    if setting(built, "is_encoder_decoder"):
        raise LayerscopeError(
            f"{source.name} alternates encoder and decoder, which one ONNX file cannot do: `format='transformers'` "
            "writes it"
        )
    served = source.model.loaded.served
    module = built.to(torch.float32)
    stack = source.model.stack.until(len(kept))
    if served is None:
        module = built.get_submodule(stack.entry)
    inputs = _batch(source, 2)
    device = next(built.parameters()).device
    batch = {
        name: tensor.to(device)
        for name, tensor in inputs.items()
        if accepts(module, name)
    }
    if source.mix is not None:
        module = MixedLayers(built, stack, source.mix)
    after = None
    outputs: tuple[str, ...] = ("token_embeddings", SENTENCE)
    if served is not None:
        modules = shortened(list(served)[1:], source)
        after = nn.Sequential(*map(copy.deepcopy, modules))
    else:
        with torch.inference_mode():
            output: Any = module(**batch)
        tensors = [name for name in output if isinstance(output[name], Tensor)]
        outputs = (tensors[0],)
    exported = Exported(module, after, tuple(batch), outputs)
    exported.to(torch.float32).eval()
    built.config.save_pretrained(folder)
    _export(exported, batch, folder / FILE, source.name)
    return exported


def output_of(folder: Path) -> str:
    """Return the name of the output that is to be read: of a sentence encoder the sentence's, the last of two."""
    return str(_session(folder).get_outputs()[-1].name)


def _batch(source: Source, samples: int, start: int = 0) -> dict[str, Tensor]:
    """A batch as the tokenizer or processor itself gives it, of texts of different lengths."""
    encoder = source.model.encoder
    processor = source.model.loaded.processor
    if encoder.modality != "text":
        return dict(encoder.batch([source.samples[0]] * samples).named)
    texts = []
    for i in range(start, start + samples):
        one = str(source.samples[i % len(source.samples)])
        texts.append(" ".join([one] * (1 + start)))
    pads = getattr(processor, "pad_token", None) is not None
    if not pads:  # a batch is of one length
        texts = texts[:1] * samples
    encoded = processor(
        texts,
        padding=pads,
        truncation=True,
        max_length=source.model.max_length,
        return_tensors="pt",
    )
    return {
        name: tensor for name, tensor in encoded.items() if isinstance(tensor, Tensor)
    }


def _export(
    exported: Exported, batch: dict[str, Tensor], path: Path, name: str
) -> None:
    """Export with any batch size and length; whether it takes them is checked by running it."""
    # ids, of any length
    shapes = []
    for tensor in batch.values():
        rank = 1
        if tensor.dtype == torch.long:
            rank = tensor.ndim
        shapes.append(dict(enumerate(AXES[:rank])))
    inputs = tuple(batch.values())
    try:
        with _silent(), torch.no_grad():
            program: Any = torch.onnx.export(
                exported,
                inputs,
                input_names=list(exported.inputs),
                output_names=list(exported.outputs),
                dynamic_shapes=(tuple(shapes),),
                dynamo=True,
                verbose=False,
            )
            size = sum(weight.nbytes for weight in exported.parameters())
            program.save(path, external_data=size > 1 << 30)
    except Exception as error:  # the exporter fails in many ways, each in pages
        raise LayerscopeError(
            f"{name} cannot be exported to ONNX (torch.onnx: {type(error).__name__}): `format='transformers'` writes it"
        ) from error


@contextmanager
def _silent() -> Iterator[None]:
    """Keep the exporter's reports, warnings and log lines off the screen; its errors come through."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _deviation(output: Any, reference: Any, mask: Tensor | None) -> float:
    """The largest difference at real positions, of a value or relative to it."""
    if output.shape != reference.shape:
        return float("inf")
    sizes = np.maximum(1.0, np.abs(reference))
    errors = np.abs(output - reference) / sizes
    if mask is not None and errors.ndim == 3 and errors.shape[:2] == tuple(mask.shape):
        errors = errors[mask.bool().cpu().numpy()]
    errors = np.nan_to_num(errors, nan=np.inf, posinf=np.inf)
    return float(errors.max(initial=0.0))


def _session(folder: Path) -> Any:
    """Return the file in a folder, opened by onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        str(folder / FILE), options, providers=["CPUExecutionProvider"]
    )
