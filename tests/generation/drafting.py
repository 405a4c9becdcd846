"""Models whose drafts are often right, prompts of different lengths, and texts with and without drafts."""

import torch
from generation.talkers import GREEDY, TOKENIZER, loud
from models.zoo import V

from layerscope.generation import SelfSpeculation

QUIET = {"processor": TOKENIZER}
NEW, DRAFTED, LAYER = 48, 3, 2
PROMPT = 12
LONG = GREEDY | {"max_new_tokens": NEW}
OUTPUTS = (
    "c_proj", "dense", "dense_4h_to_h", "out_proj", "fc2", "o_proj", "down_proj", "fc_out", "w2"
)  # fmt: skip


def drafting(model, layer=LAYER, tokens=DRAFTED):
    """Return what drafts always, also where that does not pay."""
    return SelfSpeculation(model, layer, tokens, fall_back=False)


def made(make, quiet=1.0):
    """Return a model whose last block changes little, so that the layer before it often agrees with the whole."""
    model = loud(make())
    with torch.no_grad():
        for block in drafting(model).split.blocks[LAYER:]:
            for name, weight in block.named_parameters():
                last = name.split(".")[-2] if "." in name else ""
                if weight.ndim > 1 and (
                    last in OUTPUTS or name.endswith("experts.down_proj")
                ):
                    weight.mul_(quiet)
    return model


def prompts(rows):
    """Return prompts of different lengths, padded at the left."""
    seeded = torch.Generator().manual_seed(5)
    ids = torch.randint(3, V, (rows, PROMPT), generator=seeded)
    mask = torch.ones(rows, PROMPT, dtype=torch.long)
    for row in range(rows):
        ids[row, : 2 * row], mask[row, : 2 * row] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def same_text(model, speculation, **options):
    """Return the text of `generate`, which it is with drafts, too."""
    text = model.generate(**options)
    assert torch.equal(model.generate(**options, custom_generate=speculation), text)
    return text
