"""What a training tells while it runs: a bar with the loss, and a line at each evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from transformers import TrainerCallback

from layerscope.core.progress import Advance, Teller


class Telling(TrainerCallback):  # type: ignore[misc]
    """Tells of steps and evaluations; also asks for an evaluation and a checkpoint after the last step."""

    def __init__(self, teller: Teller, title: str) -> None:
        """Tell through `teller`, the bar named `title`."""
        self.teller, self.title, self.loss = teller, title, ""
        self._open = ExitStack()
        self._advance: Advance | None = None

    def close(self) -> None:
        """Take the bar away."""
        self._open.close()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Show the bar, as far as a checkpoint has come."""
        if state.is_world_process_zero:
            self._advance = self._open.enter_context(self.teller.bar(self.title, state.max_steps, "steps"))
            self._advance(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Move the bar; the last step is evaluated and kept whatever the interval."""
        if self._advance is not None:
            self._advance(1, self.loss)
        if state.global_step >= state.max_steps:
            control.should_evaluate = control.should_save = True
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Remember the loss."""
        if logs and "loss" in logs:
            self.loss = f"loss {float(logs['loss']):.3f}"

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Mapping[str, float], **_: Any) -> None:
        """Tell an evaluation in a line."""
        if state.is_world_process_zero:
            self.teller.say(line(state.global_step, metrics))


def line(step: int, metrics: Mapping[str, float]) -> str:
    """Return an evaluation in a line: loss, and the first, middle and last layer's score."""
    found = {key.removeprefix("eval_"): value for key, value in metrics.items()}
    words = [f"step {step:,}"]
    if "loss" in found:
        words.append(f"loss {found['loss']:.3f}")
    for name, shown in (("accuracy", "{:.1%}"), ("perplexity", "{:,.1f}")):
        depth = sum(key.startswith(f"{name}_layer_") for key in found)
        if depth and name in found:
            layers = sorted({1, max(1, depth // 2), depth})
            scores = ", ".join(f"{shown.format(found[f'{name}_layer_{k}'])} at layer {k}" for k in layers)
            words.append(f"{name} {scores}")
            break
    if "effective_depth" in found:
        words.append(f"effective depth {found['effective_depth']:g}")
    return " · ".join(words)
