"""Self-speculative decoding: the text of `model.generate`, with drafts accepted and rejected, in every family."""

import pytest
import torch
import transformers as hf
from generation import talkers
from generation.talkers import GREEDY, family, loud
from models import zoo
from models.zoo import D, V
from scipy import stats
from torch import nn
from typed import refused

from layerscope.generation import SelfSpeculation, generate

QUIET = {"processor": talkers.TOKENIZER}
NEW, DRAFTED, LAYER = 48, 3, 2
PROMPT, WINDOW = 12, 8
LONG = GREEDY | {"max_new_tokens": NEW}
OUTPUTS = (
    "c_proj",
    "dense",
    "dense_4h_to_h",
    "out_proj",
    "fc2",
    "o_proj",
    "down_proj",
    "fc_out",
    "w2",
)


gpt_neo = family(
    "GPTNeo",
    attention_types=[[["local", "global", "local"], 1]],
    window_size=WINDOW,
    max_position_embeddings=PROMPT + NEW,
)
mpt = family("Mpt", max_seq_len=PROMPT + NEW)


def windowed(name, kind="sliding_attention", **options):
    """Return what makes a model whose first and last layer see a few tokens only."""
    kinds = {"sliding_window": WINDOW, "layer_types": [kind, "full_attention", kind]}
    return family(name, **kinds | options)


FAMILIES = [
    zoo.gpt2,
    talkers.gpt_neox,
    zoo.opt,
    zoo.llama,
    talkers.qwen3,
    zoo.mixtral,
    talkers.phi3,
    zoo.gemma2,
    *map(family, ("GPTJ", "Bloom", "Falcon", "Olmo2", "StableLm")),
    talkers.mistral,
    talkers.gemma3,
    gpt_neo,
    mpt,
    windowed("Cohere2"),
    windowed("Phi3", layer_types=None),
    windowed("Gemma2"),
    windowed("Qwen2", use_sliding_window=True),
    windowed("GptOss"),
    windowed(
        "Llama4",
        "chunked_attention",
        attention_chunk_size=WINDOW,
        intermediate_size_mlp=64,
    ),
]
"""Those with a window, a length of positions or both fill them: prompts and new tokens are longer than the window."""


def made(make, quiet=1.0):
    """Return a model whose last block changes little, so that the layer before it often agrees with the whole."""
    model = loud(make())
    speculation = SelfSpeculation(model, LAYER, DRAFTED, fall_back=False)
    with torch.no_grad():
        for block in speculation.split.blocks[LAYER:]:
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
    ids, mask = (
        torch.randint(3, V, (rows, PROMPT), generator=seeded),
        torch.ones(rows, PROMPT, dtype=torch.long),
    )
    for row in range(rows):
        ids[row, : 2 * row], mask[row, : 2 * row] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize(
    "make, rows",
    [*((make, 5) for make in FAMILIES), (zoo.llama, 1), (gpt_neo, 1), (mpt, 1)],
    ids=talkers.name_of,
)
def test_the_text_is_that_of_generate(make, rows):
    model = made(make)
    options = prompts(rows) | LONG
    wanted = model.generate(**options)
    speculation = SelfSpeculation(model, LAYER, DRAFTED, fall_back=False)
    assert torch.equal(model.generate(**options, custom_generate=speculation), wanted)
    report = speculation.report
    assert 0 < report.accepted < report.drafted
    assert report.plain < rows * 5  # but where a single token is left to write
    # nothing is left in the model
    assert torch.equal(model.generate(**options), wanted)


def test_each_block_runs_once_for_a_token():
    model = made(zoo.llama)
    speculation = SelfSpeculation(model, LAYER, DRAFTED, fall_back=False)
    read = torch.zeros(zoo.L, dtype=torch.long)
    with_drafts, prompt = [0] * zoo.L, prompts(1)
    for i, block in enumerate(speculation.split.blocks):
        module = block.self_attn.q_proj
        module.register_forward_hook(
            lambda _, args, __, i=i: read.__setitem__(i, read[i] + args[0].shape[1])
        )
        module.register_forward_hook(
            lambda *_, i=i: with_drafts.__setitem__(i, with_drafts[i] + 1)
        )
    options = LONG | {"max_new_tokens": NEW + 1}
    model.generate(**prompt, **options, custom_generate=speculation)
    report = speculation.report
    length, verified = prompt["input_ids"].shape[1], report.drafted + report.rounds
    assert read.tolist() == [length + verified + report.plain] * zoo.L
    assert with_drafts[LAYER:] == [1 + report.rounds + report.plain] * (zoo.L - LAYER)
    assert with_drafts[:LAYER] == [1 + verified + report.plain] * LAYER
    assert speculation.scheduler.costs.seen["bare", LAYER, 1]


@pytest.mark.parametrize("right", [True, False])
def test_sampling_follows_the_model(monkeypatch, right):
    """Two tokens of 20,000 texts against the model's own law, and against it with every draft token accepted."""
    model, draws = made(zoo.llama, 3.0), 20_000
    how = {"do_sample": True, "temperature": 1.3, "top_k": 5, "top_p": 0.9}
    prompt = torch.tensor([[5, 6, 7]])
    speculation = SelfSpeculation(model, 1, 2, fall_back=False)
    if not right:
        # below every chance: all drafts are accepted
        monkeypatch.setattr(torch, "rand_like", lambda chance: torch.zeros_like(chance))
    torch.manual_seed(0)
    found = model.generate(
        prompt.expand(draws, -1),
        attention_mask=torch.ones(draws, 3),
        max_new_tokens=3,
        min_new_tokens=3,
        pad_token_id=0,
        custom_generate=speculation,
        **how,
    )
    law = torch.zeros(V, V, dtype=torch.float64)
    first = law_of(model, prompt, how)[0]
    for token in first.nonzero()[:, 0]:
        law[token] = (
            first[token]
            * law_of(model, torch.cat([prompt, token[None, None]], 1), how)[0]
        )
    counts = torch.zeros(V, V, dtype=torch.float64)
    counts.index_put_(
        (found[:, 3], found[:, 4]),
        torch.ones(draws, dtype=torch.float64),
        accumulate=True,
    )
    assert not counts[law == 0].any()
    assert 0 < speculation.report.acceptance < 1
    cells = law > 0
    statistic = float(((counts - draws * law)[cells] ** 2 / (draws * law[cells])).sum())
    p = float(stats.chi2.sf(statistic, int(cells.sum()) - 1))
    assert (p > 0.01) == right, p


@torch.no_grad()
def law_of(model, ids, how):
    """Return the law of the next token, the end of a text being forbidden, as transformers draws from it."""
    logits = model(ids, use_cache=False).logits[:, -1].float()
    logits[:, 2] = -torch.inf
    logits = hf.TemperatureLogitsWarper(how["temperature"])(ids, logits)
    logits = hf.TopPLogitsWarper(how["top_p"])(
        ids, hf.TopKLogitsWarper(how["top_k"])(ids, logits)
    )
    return logits.double().softmax(-1)


SETTINGS = [
    {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
    {"eos_token_id": [17, 30, 45, 61, 77]},
    {"min_new_tokens": 20, "eos_token_id": [8, 22, 56, 61, 84]},
    {
        "forced_eos_token_id": 9,
        "bad_words_ids": [[7], [8, 22]],
        "suppress_tokens": [12],
    },
    {"max_length": 30, "max_new_tokens": None},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda found: next(iter(found)))
def test_the_model_s_generation_settings_hold(settings):
    model = made(zoo.llama)
    options = prompts(4) | LONG | settings
    wanted = model.generate(**options)
    speculation = SelfSpeculation(model, LAYER, DRAFTED, fall_back=False)
    assert torch.equal(model.generate(**options, custom_generate=speculation), wanted)
    assert not torch.equal(
        wanted,
        model.generate(**options | dict.fromkeys(settings) | {"max_new_tokens": NEW}),
    )
    assert speculation.report.drafted


def test_a_stop_of_the_caller_and_a_streamer():
    model, tokenizer = made(zoo.llama), talkers.TOKENIZER
    options = prompts(1) | LONG
    full = model.generate(**options)[0, 12:].tolist()

    class After(hf.StoppingCriteria):
        def __call__(self, input_ids, scores, **_):
            return input_ids[:, -1] == full[9]

    seen = []

    class Keeps(hf.TextStreamer):
        def put(self, value):
            seen.extend(value.view(-1).tolist())

        def end(self):
            seen.append(-1)

    speculation = SelfSpeculation(model, LAYER, DRAFTED)
    options |= {"stopping_criteria": [After()], "streamer": Keeps(tokenizer)}
    found = model.generate(**options, custom_generate=speculation)[0]
    assert found[12:].tolist() == full[: full.index(full[9]) + 1]
    assert seen == [*found.tolist(), -1]
    with refused("a streamer takes one text, and there are 3"):
        model.generate(**options | prompts(3), custom_generate=speculation)


REFUSALS = [
    ({"num_beams": 2}, "num_beams=2"),
    ({"output_scores": True, "return_dict_in_generate": True}, "output_scores=True"),
    ({"use_cache": False}, "use_cache=False"),
    ({"cache_implementation": "static"}, "StaticCache"),
    ({"guidance_scale": 2.0}, "guidance_scale=2.0"),
    ({"attention_mask": torch.tensor([[1] * 11 + [0]])}, "padded at the right"),
    ({"position_ids": torch.arange(3, 15)[None]}, "`position_ids` of your own"),
    ({"inputs_embeds": torch.zeros(1, 12, D)}, "`inputs_embeds`"),
    ({"assistant_model": zoo.llama()}, "`assistant_model`"),
    ({"prompt_lookup_num_tokens": 3}, "`prompt_lookup_num_tokens=3`"),
    ({"assistant_early_exit": 1}, "`assistant_early_exit=1`"),
    ({"dola_layers": "high"}, "`dola_layers=high`"),
]


@pytest.mark.parametrize(
    "options, named",
    REFUSALS,
    ids=lambda found: found if isinstance(found, str) else "",
)
def test_what_cannot_be_kept_to_is_named(options, named):
    model = made(zoo.llama)
    with refused(named):
        model.generate(
            **prompts(1) | options,
            max_new_tokens=4,
            custom_generate=SelfSpeculation(model),
        )


@pytest.mark.parametrize("layer", [zoo.L, 2.5, "foo"])
def test_layers_that_cannot_draft(layer):
    with refused(r"draft_layer is .*: give a whole number from 1 to 2, or auto"):
        SelfSpeculation(zoo.llama(), layer)


recurrent_gemma = family(
    "RecurrentGemma",
    lru_width=D,
    attention_window_size=8,
    block_types=["recurrent", "recurrent", "attention"],
)
REFUSED = [
    (family("Rwkv"), "RwkvForCausalLM, which has no cache that can be cut back"),
    (zoo.mamba, "MambaForCausalLM, which has no cache that can be cut back"),
    (talkers.bamba, "BambaForCausalLM, whose caches cannot be cut back"),
    (recurrent_gemma, "RecurrentGemmaForCausalLM, whose caches cannot be cut back"),
]


@pytest.mark.parametrize(
    "make, why", REFUSED, ids=lambda found: getattr(found, "__name__", "")
)
def test_models_that_cannot_draft(make, why):
    line = f"^self-speculation and exits for next tokens do not work with {why}"
    with refused(f"{line}.*: decode plainly"):
        SelfSpeculation(loud(make()), 2)


@pytest.mark.parametrize("model", ["gpt2", nn.Linear(2, 2)])
def test_what_is_no_loaded_language_model(model):
    with refused(
        "takes a loaded language model of transformers, and this is .*: load it"
    ):
        SelfSpeculation(model)


def test_a_vocabulary_smaller_than_the_texts_that_models_are_tried_on():
    model = loud(zoo.of_class("LlamaForCausalLM", vocab_size=6))
    ids = torch.tensor([[3, 4, 5]])
    speculation = SelfSpeculation(model, 2, 1, fall_back=False)
    assert torch.equal(
        model.generate(ids, **GREEDY, custom_generate=speculation),
        model.generate(ids, **GREEDY),
    )


def test_a_model_whose_attention_sees_padding_cannot_draft():
    """Closing up columns leaves padding at the left of a text."""
    model = made(zoo.llama)
    forward = type(model).forward

    def blind(self, input_ids, attention_mask=None, **how):
        return forward(self, input_ids, **how)

    model.forward = blind.__get__(model)
    with refused("which keeps something of tokens that were cut back"):
        SelfSpeculation(model, LAYER, DRAFTED)


def test_plain_decoding_where_drafts_do_not_pay():
    """Random weights: an early layer never agrees, so after a few tokens nothing is drafted but a rare trial."""
    model = loud(zoo.llama())
    options = prompts(2) | GREEDY | {"max_new_tokens": 128, "eos_token_id": 98}
    speculation = SelfSpeculation(model)
    found = model.generate(**options, custom_generate=speculation)
    assert torch.equal(found, model.generate(**options))
    assert speculation.report.plain > 0.8 * speculation.report.tokens
    assert "do not pay" in str(speculation.report)


def test_the_verb_tells_the_same_text_and_what_was_drafted():
    model, texts = made(zoo.llama), talkers.prompts()
    how = QUIET | {"max_new_tokens": 24}
    plain = generate(model, texts, **how)
    drafted = generate(model, texts, draft_layer=2, draft_tokens=3, **how)
    assert drafted.texts["ids"].tolist() == plain.texts["ids"].tolist()
    assert "tokens per second" in drafted.notes[-1]
    one, other = (
        generate(model, texts, top_p=0.9, draft_layer=2, draft_tokens=2, **how)
        for _ in range(2)
    )
    assert one.texts["text"].tolist() == other.texts["text"].tolist()
    with refused("leave `layers` out"):
        generate(model, texts, layers=2, draft_layer=1, **how)
    with refused("draft_layer is 3: give a whole number from 1 to 2"):
        generate(model, texts, draft_layer=3, **how)
    with refused("try `draft_layer='auto'`"):
        generate(model, texts, draft_tokens=3, **how)
