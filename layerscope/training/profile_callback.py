"""A callback that profiles the layers of a model while any Trainer trains it."""

import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import reporting
from layerscope.profiling import profile
from layerscope.runs import Run
from layerscope.runs.registry import about, choose_metrics

METRICS = ("dataset_entropy", "effective_rank", "linear_probe")
"""What is logged by default; the probe only where the data have labels."""


class ProfileCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Profiles a model at regular intervals while a Trainer trains it, and logs each layer's metrics beside the loss.

    A value is called `layers/METRIC/LAYER`, and goes wherever `report_to` sends the loss. Each
    profile stays as a run in `out/step-N`; `layerscope compare` draws them as maps of layer by
    step. Training goes on as it would have done: the state of torch's random numbers is put back.
    The time that all this takes is logged as `layers/seconds`, and said at the end of the training.

    Args:
        trainer: any Trainer of transformers or sentence-transformers; add the callback to it with
            `add_callback`.
        data: what `profile` reads: a file, a list of texts, a frame, with labels or without.
        every: steps between two profiles; the model is profiled before the first step and after the
            last one too.
        metrics: names of the metrics to log, those of `profile`; all of one number per layer.
        out: folder of the runs; by default `layers` in the Trainer's own folder.
        **options: further arguments of `profile`, such as `samples` or `pooling`.

    Raises:
        LayerscopeError: when the training begins, for everything that `profile` refuses.

    Example:
        >>> from layerscope.training import ProfileCallback
        >>> ProfileCallback.__mro__[1].__name__
        'TrainerCallback'

    """

    def __init__(
        self,
        trainer: Any,
        data: Any,
        *,
        every: int = 500,
        metrics: str | tuple[str, ...] = METRICS,
        out: str | Path | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(every, int) or every < 1:
            raise LayerscopeError(f"every is {every!r}: give a number of steps, at least 1")
        self.metrics = choose_metrics(metrics)
        if pairs := [name for name in self.metrics if about(name).needs == "pairs"]:
            raise LayerscopeError(
                f"{pairs[0]} compares pairs of layers: name metrics with a number for each layer"
            )
        self.trainer, self.data, self.every = trainer, data, every
        self.folder = Path(trainer.args.output_dir, "layers") if out is None else Path(out)
        self.options = {
            "samples": 500,
            "views": 0,
            "progress": False,
            **options,
            "metrics": self.metrics,
        }
        self.seconds, self.began = 0.0, 0.0
        self.runs: list[Run] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Profile the model as it is before the first step."""
        self.began = time.perf_counter()
        self._profile(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Profile the model where it is time."""
        if state.global_step % self.every == 0:
            self._profile(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Profile the trained model, and say what all profiles cost."""
        if state.global_step % self.every:
            self._profile(state.global_step)
        share = 100 * self.seconds / (time.perf_counter() - self.began)
        reporting(state.is_world_process_zero).say(
            f"{len(self.runs)} profiles of {self.runs[-1].depth} layers took {self.seconds:.1f} s, {share:.0f} % of "
            f"the training: layerscope compare {self.folder}/step-*"
        )

    def _profile(self, step: int) -> None:
        """Profile the model, and log its metrics by layer."""
        trainer, began = self.trainer, time.perf_counter()
        module = trainer.accelerator.unwrap_model(trainer.model)
        processor = {} if hasattr(module, "encode") else {"processor": trainer.processing_class}
        with torch.random.fork_rng():
            run = profile(
                module, self.data, out=self.folder / f"step-{step}", **processor, **self.options
            )
        self.runs.append(run)
        table = run.table().drop_duplicates(["metric", "layer"])
        table = table[table["metric"].isin(self.metrics) & table["layer"].notna()]
        rows = zip(table["metric"], table["layer"], table["value"], strict=True)
        seconds = time.perf_counter() - began
        self.seconds += seconds
        values = {f"layers/{metric}/{layer}": float(value) for metric, layer, value in rows}
        trainer.log(values | {"layers/seconds": seconds})
