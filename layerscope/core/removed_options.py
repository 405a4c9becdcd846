"""Options that are gone, and what to use instead: one table for calls and for the command line."""

from collections.abc import Mapping
from typing import Any

from layerscope.core.errors import LayerscopeError

NO_RULES = "no rule without labels earned trust; give labels (layerscope scores shows what each rule would have chosen)"
NO_TARGET = "few target labels choose worse than none; `tasks` names the shifted test set, to choose by all of it"
NO_DIMS = "truncate --dim writes a model of fewer dimensions, and train --dims trains one to serve at several"
NO_LAYERSKIP = "the objective aligned trains every exit in every step"
NO_TENSOR_PARALLEL = "`device='map'` spreads a model over the devices of one process"
NO_DRAFT_OPTION = "drafts are set by draft_layer and draft_tokens; layerscope exits says which layer pays"
OFFLOADING = dict.fromkeys(
    ("max_memory", "offload"),
    "load the model with transformers' own `device_map`, and give the object",
)
"""Of verbs that load a model as it is."""
FIGURES = "layerscope report draws the figures of any saved result, with --figures"
GONE = {
    "": {
        "demo": "layerscope profile minilm --data stdlib-docs does the same",
        "merge": "the last shard of extract marks the folder; extract without --shard checks it and fills gaps",
    },
    "inspect": OFFLOADING,
    "profile": {
        **OFFLOADING,
        "head": "profile the model itself: states alone have no head",
        "parallel": NO_TENSOR_PARALLEL,
        "figures": FIGURES,
        "until_stderr": "`samples` says how many texts are read; the table has their errors",
        "revisions": "profile each with --revision and --out, then compare the runs",
        "prefixes": "metrics.prompt_entropy takes them, of token states by `extract --tokens`",
        "entropy_samples": "on a GPU they are 256, elsewhere all; alpha=2 takes all on both",
        "view_kinds": "views change a text, image or sound in all ways",
        "view_share": "a view changes a tenth of a text's words",
    },
    "lens": {
        **OFFLOADING,
        "figures": FIGURES,
        "tokens": "it is called generate",
        "page": "with --out, a page lies beside the numbers",
    },
    "evaluate": {
        **OFFLOADING,
        "dims": NO_DIMS,
        "jobs": "start it with torchrun or accelerate, whose processes share the layers",
        "keep_states": "extract writes the states of a model; an evaluation that was killed finds its own",
        "split": "there are no attention probes any more; a linear-probe is judged in folds",
        "task_file": "give the same KIND:FILE to --data",
    },
    "extract": {
        **OFFLOADING,
        "parallel": NO_TENSOR_PARALLEL,
        "chunk": "extract reads a text file line by line: write one window a line",
        "samples": "extract reads all data: give it those rows alone",
        "seed": "extract reads all data, and draws nothing",
    },
    "exits": {
        **OFFLOADING,
        "figures": FIGURES,
        "criterion": "a sample leaves by the probability of its likeliest class, as in the paper",
        "min_accuracy": "accuracy falls by at most max_disagreement, which is certified without labels",
        "draft_lens": NO_DRAFT_OPTION,
    },
    "generate": {
        **OFFLOADING,
        "figures": FIGURES,
        "draft_lens": NO_DRAFT_OPTION,
        "draft_threshold": NO_DRAFT_OPTION,
        "encoder": "layerscope.metrics.coherence takes the vectors of any sentence encoder",
        "drafts": "give the --draft-layer that `layerscope exits` prints",
    },
    "truncate": {
        **OFFLOADING,
        "layers": "truncate to each layer by itself",
        "site": "extract reads states before the final norm",
    },
    "compare": {
        "figures": FIGURES,
        "data": "run layerscope profile on each model, and compare the runs",
        "samples": "run layerscope profile --samples on each model, and compare the runs",
    },
    "select": {
        "max_dim": NO_DIMS,
        "evidence": NO_RULES,
        "rule='half-text'": NO_RULES,
        "rule='fixed-share'": NO_RULES,
        "rule='shift'": NO_TARGET,
        "rule='one-standard-error'": "best-if-clear offers the shallowest layer that does not differ measurably",
        "target_labels": NO_TARGET,
        "holdout": "the gain is of folds: each fold is judged at the layer that the others choose",
        "first_layer": "layer 0 is never a candidate; evaluate fewer layers to choose among fewer",
        "cost_model": "the model is found by its name or folder; download it first",
    },
    "scores": {
        "save_rules": "rules are not fitted any more; `metrics` prints what each of them would have chosen",
        "min_share": "a layer needs scores on 25 of 32 tasks; leave layers or tasks out of the file",
        "variant": "the raw variant of a metric counts; leave the others out of the file",
        "first_layer": "layer 0 is never a candidate",
        "bootstrap": "layerscope.scores.correlate takes it",
        "seed": "layerscope.scores.correlate takes it",
        "kind": "rules are not fitted any more, for one kind of models or another",
    },
    "train": {
        "as_printed": "give the printed value itself, such as --learning-rate 0.1",
        "baseline_depths": (
            "train a model of that depth itself: truncate first, or give --from-config a config of fewer layers"
        ),
        "depth_on": "profile the trained model on training samples, with the metric layer_accuracy",
        "keep_checkpoints": "AlignedTrainer keeps checkpoints as its arguments say",
        "layer_dropout": NO_LAYERSKIP,
        "rotation": NO_LAYERSKIP,
        "task='masked-lm'": "AlignedTrainer trains any model with a collator such as DataCollatorForLanguageModeling",
        "temperature": "distillation is at temperature 1",
        "preset": "give the settings themselves; docs/commands/train.md has those of the papers",
        "schedule='gradual'": NO_LAYERSKIP,
        "schedule='rotating'": NO_LAYERSKIP,
        "weights='layerskip'": NO_LAYERSKIP,
    },
}
"""By verb, and then by option, option with a value, or (of no verb) command: the mend.

A name that stands here is refused even if a verb declares it, so one that comes back is taken out.
"""


def instead_of(verb: str, option: str) -> str:
    """Return what to do instead of an option that is gone, empty for any other.

    >>> from layerscope.core.removed_options import instead_of
    >>> instead_of("select", "evidence")[:38], instead_of("select", "rule")
    ('no rule without labels earned trust; g', '')
    """
    return GONE.get(verb, {}).get(option, "")


def refuse_gone(verb: str, options: Mapping[str, Any]) -> None:
    """Raise `LayerscopeError` where a call names an option, or a value of one, that is gone."""
    for name, value in options.items():
        chosen = f"{name}={value!r}" if isinstance(value, str) else name
        for option in (name, chosen):
            if mend := instead_of(verb, option):
                raise LayerscopeError(f"`{option}` is gone: {mend}")
