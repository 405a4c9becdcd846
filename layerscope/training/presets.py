"""Published settings by name.

Source: Tracing Representation Progression, section 4 and appendix; where the print says nothing, our defaults stand.
"""

from __future__ import annotations

from typing import Any

from layerscope.core.errors import LayerscopeError, choices

IMAGE = "image-classification"

PRESETS: dict[str, dict[str, Any]] = {
    "tracing-glue": {
        "task": "classification",
        "schedule": "always",
        "learning_rate": 2e-5,
        "batch_size": 32,
        "epochs": 3,
        "max_length": 256,
    },
    "tracing-gpt2": {
        "task": "causal-lm",
        "schedule": "always",
        "learning_rate": 2e-5,
        "batch_size": 8,
        "max_steps": 40_000,
        "max_length": 256,
    },
    "tracing-deit": {
        "task": IMAGE,
        "schedule": "alternate",
        "learning_rate": 5e-4,  # the print has 0.1, at which AdamW does not learn; this is the rate of DeiT itself
        "batch_size": 256,
        "epochs": 200,
        "weight_decay": 1e-4,
        "scheduler": "multistep",
        "augment": True,
    },
}
PRINTED: dict[str, dict[str, Any]] = {"tracing-deit": {"learning_rate": 0.1}}
"""What the print has where the preset has another value."""


def preset_settings(name: str | None, *, as_printed: bool = False) -> dict[str, Any]:
    """Return the settings of a preset, none for None; with `as_printed` those the print has, plausible or not."""
    if name is None:
        if as_printed:
            raise LayerscopeError("--as-printed takes a preset as the paper prints it: name one with --preset")
        return {}
    if name not in PRESETS:
        raise LayerscopeError(f"preset {name!r} does not exist{choices(name, PRESETS)}")
    return PRESETS[name] | (PRINTED.get(name, {}) if as_printed else {})


def told(name: str, given: dict[str, Any], *, as_printed: bool) -> str:
    """Return a line on what a preset sets, without what was given beside it."""
    found = preset_settings(name, as_printed=as_printed)
    shown = ", ".join(f"{key} {value}" for key, value in found.items() if given.get(key) is None)
    printed = PRINTED.get(name, {})
    other = [f"{key} {value}" for key, value in printed.items() if given.get(key) is None and not as_printed]
    note = f" (the paper prints {', '.join(other)}: --as-printed)" if other else ""
    return f"preset {name}: {shown}{note}"
