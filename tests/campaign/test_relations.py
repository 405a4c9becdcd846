"""Numbers that must stay when order, batches, padding, threads, precision or names change, and those that must move."""

from functools import cache
from pathlib import Path

import numpy as np
import tiny
import torch
import transformers as hf
from campaign.relations import RELATIONS, differing, labelled_texts, threads
from trials import Part

import layerscope
from layerscope.models.hub import embedded

one_thread = tiny.one_thread


@cache
def opened(model: str) -> tuple[torch.nn.Module, hf.PreTrainedTokenizerBase]:
    auto = hf.AutoModelForCausalLM if "stories" in model else hf.AutoModel
    return auto.from_pretrained(model).eval(), hf.AutoTokenizer.from_pretrained(model)


def models() -> list[str]:
    stories = Path(__file__).resolve().parents[3] / "shared/models/stories260K"
    return [str(embedded("minilm")), *([str(stories)] if stories.is_dir() else [])]


def profiled(model: str, frame, folder: Path, *, side: str = "right", number: int = 1, **options) -> layerscope.Run:
    folder.mkdir()
    frame.to_csv(folder / "data.csv", index=False)
    module, tokenizer = opened(model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = side
    given = (module, {"processor": tokenizer}) if "dtype" not in options else (model, {})
    with threads(options.pop("threads", 1)):
        return layerscope.profile(
            given[0], str(folder / "data.csv"), out=folder / "run", metrics="all", text_column="text",
            label_column="label", pooling="mean", progress=False, **given[1], **options,
        )  # fmt: skip


def test_relations(tmp_path: Path) -> None:
    part, names = Part("numbers", few=2, share=0.2), models()
    bases: dict[tuple[str, int], layerscope.Run] = {}
    for trial in part.trials():
        with trial:
            draw, number = divmod(trial.seed, len(RELATIONS))
            relation, model = RELATIONS[number], names[(draw + number) % len(names)]
            rng = np.random.default_rng(draw)
            frame = labelled_texts(rng)
            key = model, draw
            if key not in bases:
                bases[key] = profiled(model, frame, tmp_path / f"{trial.seed}-base")
            changed = relation.change(frame, rng)
            run = profiled(model, changed, tmp_path / str(trial.seed), **relation.options)
            found = differing(bases[key].table(), run.table(), relation)
            if relation.choice:
                layers = [layerscope.select(each, cost=False, progress=False).layer for each in (bases[key], run)]
                found += [f"layer {layers[1]} is chosen for {layers[0]}"] if layers[0] != layers[1] else []
            assert not found, f"{relation.name}, {Path(model).name}: {'; '.join(found)}"
