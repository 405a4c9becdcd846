"""What the verb tells of texts, masks, tags and samples, and the one line that tells a wrong input."""

import json

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from logit_lens.readers import PLAIN, SPECIAL
from models import zoo
from models.test_capture import layered, states
from models.tokenizer import word_tokenizer
from models.zoo import t5, vit
from tokenizers import ByteLevelBPETokenizer
from typed import refused

import layerscope
from layerscope import lens
from layerscope.inputs import Corpus, draw
from layerscope.logit_lens.document import grids
from layerscope.logit_lens.subjects import token_names


def masked_tokenizer():
    """Return the tokenizer of whole words with a mask, which is the last of its words."""
    own = tiny.tokenizer(special=True)
    own.mask_token = "w89"
    return own


@pytest.fixture(scope="module")
def written():
    """Return a text that a tiny language model has gone on with."""
    return lens(
        tiny.llama(),
        "w1 w2 w3",
        processor=PLAIN,
        generate=4,
        top=3,
    )


def test_the_tables_are_what_every_layers_states_give_through_norm_and_head(written):
    model = tiny.llama()
    ids = [5, 6, 7, *written.saturation["id"][written.saturation["generated"]][:-1]]
    with torch.inference_mode():
        hidden = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        # all but the last of them are before the final norm
        logits = [model.lm_head(model.model.norm(state)) for state in hidden[:-1]] + [
            model.lm_head(hidden[-1])
        ]
    chances = torch.stack(logits)[:, 0].softmax(-1)
    best = chances.topk(3)
    grid = written.grid.sort_values(["layer", "position", "rank"])
    assert grid["id"].tolist() == best.indices.ravel().tolist()
    np.testing.assert_allclose(
        grid["probability"], best.values.ravel(), rtol=1e-4, atol=1e-6
    )

    assert written.saturation["truth"].tolist() == ["w2", "w3", None, None, None, None]
    assert written.saturation["generated"].tolist() == [False] * 2 + [True] * 4


def test_the_answer_and_the_curve_count_the_new_tokens_alone(written):
    layers = written.saturation["layer"][2:]
    table = written.cumulative
    assert table["layer"].tolist() == [1, 2, 3] and table["settled"].tolist()[-1] == 4
    assert table["share"].tolist() == [(layers <= k).mean() for k in (1, 2, 3)]
    early = int((layers < 3).sum())
    assert written.summary.startswith(f"{early} of 4 new tokens settle")
    assert f"layer {layers.mean():.1f}".removesuffix(".0") in written.summary


def test_a_mask_is_read_where_it_stands_and_without_one_every_token_as_itself():
    gap = lens(tiny.bert(), "w1 [MASK] w3 [MASK]", processor=masked_tokenizer())
    assert gap.kind == "masked" and gap.saturation["position"].tolist() == [2, 4]
    assert gap.saturation["truth"].isna().all() and "2 masked tokens" in gap.summary
    bare = hf.PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer().backend_tokenizer
    )
    # one token tells nothing by itself
    assert lens(tiny.bert(), "w5", processor=bare).kind == "itself"
    whole = lens(tiny.bert(), "w1 w2", processor=SPECIAL)
    assert whole.kind == "itself" and whole.saturation["truth"].tolist() == [
        "[CLS]",
        "w1",
        "w2",
        "[SEP]",
    ]
    data = lens(tiny.bert(), data=["w1 w2", "w3 w89"], processor=masked_tokenizer())
    assert data.texts == ("w3 w89",)
    assert "1 sample of 2 have no mask: left out" in data.notes


def test_tags_have_the_names_of_the_model():
    names = {0: "O", 1: "PER", 2: "LOC"}
    model = zoo.seeded("BertForTokenClassification", id2label=names)
    tags = lens(model, "w1 w2", processor=SPECIAL)
    assert tags.kind == "tag" and tags.top == 3
    assert set(tags.grid["prediction"]) == {"O", "PER", "LOC"}


def test_samples_of_a_classifier_in_their_order_with_their_labels():
    texts = tiny.texts(6)
    reading = lens(
        tiny.classifier(),
        data=(texts, [0, 1, 2, 0, 1, 2]),
        samples=4,
        processor=SPECIAL,
    )
    drawn = draw(Corpus("texts", "text", texts, texts), 4, seed=0).samples
    assert reading.kind == "class" and reading.texts == tuple(drawn)
    assert reading.saturation["truth"].tolist() == [
        f"LABEL_{texts.index(text) % 3}" for text in drawn
    ]
    assert any("4 samples of 6 are read" in note for note in reading.notes)
    model = layered(tiny.classifier(), processor=SPECIAL, samples=texts)
    for i, text in enumerate(drawn):
        state = states(model, [text])["raw", 1]
        own = (
            model.lens.sample_logits(state, model.encoder.batch([text]))
            .softmax(-1)
            .max()
        )
        rows = reading.grid[reading.grid["sample"] == reading.samples[i]]
        assert rows.query("layer == 1 and rank == 1")[
            "probability"
        ].item() == pytest.approx(float(own), rel=1e-5)
    (grid,) = grids(reading)
    layers = reading.grid["layer"].unique()
    for (_, cells), settled in zip(grid.rows, reading.saturation["layer"], strict=True):
        assert [cell.settles for cell in cells] == [*(layers == settled)]


def test_a_part_of_a_character_has_its_stored_form():
    made = ByteLevelBPETokenizer()
    made.train_from_iterator(["a b"], vocab_size=300, show_progress=False)
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=made._tokenizer)
    name = token_names(tokenizer)
    numbers = *tokenizer.convert_tokens_to_ids(["æ", "Ġ", "a"]), len(tokenizer)
    assert [*map(name, numbers)] == ["æ", " ", "a", f"#{len(tokenizer)}"]


def test_data_are_read_as_profile_reads_them_and_the_mean_has_its_error(
    tmp_path, capfd
):
    path = tmp_path / "running.txt"
    path.write_text("\n".join(tiny.texts(60, longest=60)))
    made = {"processor": tiny.tokenizer(special=False), "max_length": 16}
    reading = lens(tiny.llama(), data=path, samples=20, **made)
    lines = capfd.readouterr().err
    run = layerscope.profile(
        tiny.llama(),
        path,
        samples=20,
        metrics="saturation_layer",
        lens_tokens="all",
        out=tmp_path / "run",
        **made,
    )
    assert (
        set(reading.samples) == set(run.folder.plan["name"])
        and (reading.saturation.groupby("sample").size() == 16).all()
    )
    layers = reading.saturation["layer"]
    assert layers.mean() == pytest.approx(
        float(run.metric("saturation_layer").iloc[-1]), abs=0.1
    )
    by_sample = reading.saturation.groupby("sample")["layer"].mean()
    assert reading.stderr == pytest.approx(by_sample.std() / 20**0.5)
    assert (
        f"at layer {layers.mean():.2f} ±{reading.stderr:.2f} of 1–3" in reading.summary
    )
    note = next(note for note in reading.notes if "20 samples of" in note)
    assert note in lines and not reading.document().notes, "each is said once"


def test_long_samples_are_cut_and_empty_ones_left_out():
    reading = lens(
        tiny.gpt2(),
        data=["w1 " * 90, "", "w2 w3"],
        generate=3,
        processor=PLAIN,
    )
    assert len(reading.samples) == 2 and len(reading.continuations) == 2
    # 62 read, 2 of 3 new ones behind them
    assert reading.saturation.groupby("sample").size().max() == 64
    assert any("cut at 62 tokens" in note for note in reading.notes)


def bare():
    return hf.BertModel(hf.BertConfig(**tiny.COMMON)).eval()


@pytest.mark.parametrize(
    "make, how, line",
    [
        (tiny.gpt2, {"prompt": "w1", "data": ["w1"]}, "give either a prompt or data"),
        (tiny.gpt2, {"prompt": " "}, "the prompt is empty"),
        (tiny.gpt2, {"prompt": "w1", "tokens": 2}, "`tokens` is gone: "),
        (
            tiny.gpt2,
            {"prompt": "w1", "generate": 65},
            "65 new tokens are beyond the model's 64 positions: `generate` fewer",
        ),
        (
            t5,
            {"prompt": "w1", "part": "decoder", "generate": 2},
            "needs a language model that",
        ),
        (tiny.bert, {"prompt": "w1 [MASK]"}, "has no mask token"),
        (bare, {"prompt": "w1"}, "has no head over its layers"),
        (t5, {"prompt": "w1"}, "`part='encoder'` or `part='decoder'`"),
        (t5, {"prompt": "w1", "part": "encoder"}, "the encoder of"),
        (vit, {"prompt": "w1"}, "reads images"),
    ],
)
def test_a_wrong_input_is_one_line(make, how, line):
    processors = {
        vit: None,
        t5: word_tokenizer(),
        bare: word_tokenizer(),
        tiny.gpt2: PLAIN,
    }
    with refused(line):
        lens(make(), processor=processors.get(make, SPECIAL), **how)


def test_a_head_that_breaks_is_reported_with_its_layer():
    model = tiny.llama()
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.fill_(torch.nan)
    with refused("head|NaN"):
        lens(model, "w1 w2", processor=PLAIN)


def test_the_command_prints_the_grid_of_a_real_model(cli, shared, tmp_path):
    model = shared / "models" / "stories260K"
    out = tmp_path / "out"
    done = cli(
        "lens",
        model,
        "--prompt",
        "Once upon a time",
        "--generate",
        24,
        "--out",
        out,
    )
    assert done.status == 0
    assert done.out.splitlines()[0] == (
        "14 of 24 new tokens settle before the last layer; on average at layer 4.2 of 1–5"
    )
    assert "there was a little girl named Lily" in done.out and "5 final" in done.out
    assert (out / "report.html").is_file()
    done = cli("lens", model, "--prompt", "Once upon a time", "--json")
    told = json.loads(done.out)
    assert told["kind"] == "next" and len(told["saturation"]) == 5
