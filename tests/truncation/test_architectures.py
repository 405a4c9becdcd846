"""Every architecture cut at a middle layer, loaded by transformers alone, against a walk through the full model."""

import pytest
import torch
import transformers as hf
from models import walks, zoo
from models.test_capture import IDS
from models.tokenizer import word_tokenizer
from models.zoo import TEXT, L
from safetensors.torch import load_file
from truncation.cutting import close, cut as truncate, loaded, saved

K = L - 1
# transformers reads the tokenizer of every Qwen2 as byte pairs, which the tests' words are not
CASES = [case for case in TEXT if case.name != "qwen2"]
DECODERS = [case for case in CASES if case.name in ("gpt2", "llama", "gemma2")]


def layer(walk, k=K):
    states, norm = walk
    return states[k] if norm is None else norm(states[k])


def made(name):
    return next(case for case in TEXT if case.name == name).make()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@torch.no_grad()
def test_trap_09_a_text_model_without_its_last_layer_is_that_layer_of_the_full_one(
    case, tmp_path
):
    model = case.make()
    out = truncate(saved(model, tmp_path / "full"), K, tmp_path / "cut")
    ids = torch.tensor([IDS[0]])
    wanted = layer(walks.TEXT[case.name](model, ids))
    head = hf.AutoModelForCausalLM if case.causal else hf.AutoModelForMaskedLM
    whole = loaded(head, out)
    assert type(whole) is type(model)
    close(whole.base_model(input_ids=ids).last_hidden_state, wanted)
    close(
        hf.AutoModel.from_pretrained(out).eval()(input_ids=ids).last_hidden_state,
        wanted,
    )
    assert hf.AutoTokenizer.from_pretrained(out)("w7 w8")["input_ids"] == [7, 8]
    with pytest.raises(AssertionError):
        close(wanted, layer(walks.TEXT[case.name](model, ids), L))


@pytest.mark.parametrize("case", DECODERS, ids=lambda case: case.name)
@torch.no_grad()
def test_the_one_head_of_a_language_model_reads_the_layer_and_stays_tied(
    case, tmp_path
):
    model = case.make()
    model.config.tie_word_embeddings = True
    model.tie_weights()
    ids = torch.tensor([IDS[0]])
    out = truncate(saved(model, tmp_path / "full"), 1, tmp_path / "cut")
    cut = loaded(hf.AutoModelForCausalLM, out)
    wanted = model.get_output_embeddings()(layer(walks.TEXT[case.name](model, ids), 1))
    cap = getattr(model.config, "final_logit_softcapping", None)
    close(
        cut(input_ids=ids).logits,
        wanted if cap is None else cap * torch.tanh(wanted / cap),
    )
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert cut.get_output_embeddings().weight is cut.get_input_embeddings().weight
    stored = load_file(out / "model.safetensors")
    assert sum(tuple(tensor.shape) == (zoo.V, zoo.D) for tensor in stored.values()) == 1


@torch.no_grad()
def test_albert_runs_its_shared_block_fewer_times_though_other_numbers_equal_its_depth(
    tmp_path,
):
    model = zoo.of_class("AlbertForMaskedLM", 4, embedding_size=16)
    out = truncate(saved(model, tmp_path / "full"), 2, tmp_path / "cut")
    cut, ids = hf.AutoModel.from_pretrained(out).eval(), torch.tensor([IDS[0]])
    close(cut(input_ids=ids).last_hidden_state, layer(walks.albert(model, ids), 2))
    assert (cut.config.num_hidden_layers, cut.config.num_attention_heads) == (2, 4)


@torch.no_grad()
def test_distilbert_and_a_classifier_of_bert_keep_their_heads(tmp_path):
    kind, names = (
        "DistilBertForSequenceClassification",
        {0: "no", 1: "yes", 2: "perhaps"},
    )
    distil = zoo.of_class(kind, 4, hidden_dim=64, num_labels=3)
    bert = zoo.of_class("BertForSequenceClassification", id2label=names)
    ids = torch.tensor([IDS[0]])

    def cut(model, name):
        out = truncate(saved(model, tmp_path / name), 2, tmp_path / f"{name}-cut")
        return loaded(hf.AutoModelForSequenceClassification, out)

    state = distil.distilbert.embeddings(ids)
    for block in distil.distilbert.transformer.layer[:2]:
        state = walks.first(block(state))
    shorter = cut(distil, "distilbert")
    close(shorter.distilbert(input_ids=ids).last_hidden_state, state)
    close(
        shorter(input_ids=ids).logits,
        distil.classifier(distil.pre_classifier(state[:, 0]).relu()),
    )
    shorter = cut(bert, "bert")
    state = layer(walks.bert(bert, ids), 2)
    close(shorter(input_ids=ids).logits, bert.classifier(bert.bert.pooler(state)))
    assert shorter.config.id2label == names


@torch.no_grad()
def test_the_encoder_of_t5_becomes_an_encoder_of_its_own(tmp_path):
    model = zoo.t5()
    out = truncate(saved(model, tmp_path / "full"), 2, tmp_path / "cut", part="encoder")
    cut = loaded(hf.AutoModelForTextEncoding, out)
    ids = torch.tensor([IDS[0]])
    close(cut(input_ids=ids).last_hidden_state, layer(walks.t5_encoder(model, ids), 2))
    assert type(cut) is hf.T5EncoderModel and not any(
        "decoder" in name for name in cut.state_dict()
    )


@torch.no_grad()
def test_the_decoder_of_t5_is_cut_within_the_whole(tmp_path):
    model = zoo.t5()
    out = truncate(saved(model, tmp_path / "full"), 1, tmp_path / "cut", part="decoder")
    cut = loaded(hf.AutoModelForSeq2SeqLM, out)
    ids = torch.tensor([IDS[0]])
    start = torch.cat([torch.zeros(1, 1, dtype=torch.long), ids[:, :-1]], 1)
    found = cut(input_ids=ids, decoder_input_ids=start, output_hidden_states=True)
    close(found.decoder_hidden_states[-1], layer(walks.t5_decoder(model, ids), 1))
    close(found.encoder_last_hidden_state, layer(walks.t5_encoder(model, ids), 3))


@torch.no_grad()
def test_vit_with_its_classifier_and_image_processor(tmp_path):
    model = zoo.vit()
    processor = hf.ViTImageProcessor(size={"height": 16, "width": 16})
    out = truncate(saved(model, tmp_path / "full", processor), K, tmp_path / "cut")
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    cut, state = (
        loaded(hf.AutoModelForImageClassification, out),
        layer(walks.vit(model, pixels)),
    )
    close(cut.vit(pixel_values=pixels).last_hidden_state, state)
    close(cut(pixel_values=pixels).logits, model.classifier(state[:, 0]))
    assert (out / "preprocessor_config.json").is_file()


@torch.no_grad()
def test_dinov2_derives_the_names_of_its_stages_from_its_depth(tmp_path):
    model = zoo.of_class("Dinov2Model", 4, **zoo.IMAGE)
    out = truncate(model, 2, tmp_path / "cut")
    pixels, cut = (
        torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0)),
        loaded(hf.AutoModel, out),
    )
    state = model(pixel_values=pixels, output_hidden_states=True).hidden_states[2]
    close(cut(pixel_values=pixels).last_hidden_state, model.layernorm(state))
    assert cut.config.stage_names == ["stem", "stage1", "stage2"]


@pytest.mark.parametrize("part, left", [("encoder", (2, 2)), ("decoder", (3, 1))])
@torch.no_grad()
def test_whisper_is_cut_on_one_side_within_the_whole(part, left, tmp_path):
    model = zoo.whisper()
    folder = saved(model, tmp_path / "full", hf.WhisperFeatureExtractor())
    out = truncate(folder, 2 if part == "encoder" else 1, tmp_path / "cut", part=part)
    cut = loaded(hf.AutoModelForSpeechSeq2Seq, out)
    features = torch.randn(1, 80, 3000, generator=torch.Generator().manual_seed(0))
    close(
        cut.model.encoder(features).last_hidden_state,
        layer(walks.whisper(model, features), left[0]),
    )
    assert (len(cut.model.encoder.layers), len(cut.model.decoder.layers)) == left
    assert hf.AutoFeatureExtractor.from_pretrained(out).sampling_rate == 16000


@torch.no_grad()
def test_a_tower_of_clip_has_its_depth_in_a_nested_config(tmp_path):
    model = zoo.clip()
    out = truncate(saved(model, tmp_path / "full"), 2, tmp_path / "cut")
    cut = loaded(hf.AutoModel, out)
    assert (
        cut.config.text_config.num_hidden_layers,
        cut.config.vision_config.num_hidden_layers,
    ) == (2, 3)
    ids = torch.tensor([IDS[0]])
    state = model.text_model(input_ids=ids, output_hidden_states=True).hidden_states[2]
    close(
        cut.text_model(input_ids=ids).last_hidden_state,
        model.text_model.final_layer_norm(state),
    )
    assert "part text\\_model" in (out / "README.md").read_text()
    out = truncate(tmp_path / "full", 2, tmp_path / "seen", part="vision")
    pixels = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    state = model.vision_model(pixels, output_hidden_states=True).hidden_states[2]
    close(
        hf.CLIPVisionModel.from_pretrained(out).eval()(pixels).last_hidden_state, state
    )
    cut = loaded(hf.AutoModel, out)
    assert (
        cut.config.text_config.num_hidden_layers,
        cut.config.vision_config.num_hidden_layers,
    ) == (3, 2)
    assert "part vision\\_model" in (out / "README.md").read_text()


def test_the_model_given_as_an_object_is_left_as_it_was(tmp_path):
    model = made("gpt2").train()
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    truncate(model, 1, tmp_path / "cut", processor=word_tokenizer())
    assert all(
        torch.equal(before[key], tensor) for key, tensor in model.state_dict().items()
    )
    assert (
        model.config.n_layer == L and len(model.transformer.h) == L and model.training
    )
