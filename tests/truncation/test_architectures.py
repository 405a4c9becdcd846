"""Every architecture cut at a middle layer, loaded by transformers alone, against a walk through the full model."""

import pytest
import torch
import transformers as hf
from models import walks, zoo
from models.test_capture import IDS
from models.tokenizer import saved, word_tokenizer
from models.zoo import TEXT, L
from safetensors.torch import load_file
from truncation.cutting import close, cut as truncate, loaded
from unchanged import state_of

pytestmark = pytest.mark.usefixtures("no_gradients")

K = L - 1
TEXT_IDS = torch.tensor(IDS[:1])
PIXELS = zoo.drawn(2, 3, 16, 16)
# transformers reads the tokenizer of every Qwen2 as byte pairs, which the tests' words are not
CASES = [case for case in TEXT if case.name != "qwen2"]
DECODERS = [case for case in CASES if case.name in ("gpt2", "llama", "gemma2")]


def layer(walk, k=K):
    states, norm = walk
    return states[k] if norm is None else norm(states[k])


def shortened(model, k, folder, auto, processor=None, **options):
    """Return what transformers loads of a saved model that was cut."""
    full = saved(model, folder / "full", processor)
    return loaded(auto, truncate(full, k, folder / "cut", **options))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_trap_09_a_text_model_without_its_last_layer_is_that_layer_of_the_full_one(
    case, tmp_path
):
    model = case.make()
    head = hf.AutoModelForCausalLM if case.causal else hf.AutoModelForMaskedLM
    whole = shortened(model, K, tmp_path, head)
    assert type(whole) is type(model)
    walk = walks.TEXT[case.name](model, TEXT_IDS)
    out = tmp_path / "cut"
    for core in (whole.base_model, hf.AutoModel.from_pretrained(out).eval()):
        close(core(input_ids=TEXT_IDS).last_hidden_state, layer(walk))
    assert hf.AutoTokenizer.from_pretrained(out)("w7 w8")["input_ids"] == [7, 8]
    with pytest.raises(AssertionError):
        close(layer(walk), layer(walk, L))


@pytest.mark.parametrize("case", DECODERS, ids=lambda case: case.name)
def test_the_one_head_of_a_language_model_reads_the_layer_and_stays_tied(
    case, tmp_path
):
    model = case.make()
    model.config.tie_word_embeddings = True
    model.tie_weights()
    cut = shortened(model, 1, tmp_path, hf.AutoModelForCausalLM)
    state = layer(walks.TEXT[case.name](model, TEXT_IDS), 1)
    wanted = model.get_output_embeddings()(state)
    cap = getattr(model.config, "final_logit_softcapping", None)
    close(
        cut(input_ids=TEXT_IDS).logits,
        wanted if cap is None else cap * torch.tanh(wanted / cap),
    )
    assert cut.get_output_embeddings().weight is cut.get_input_embeddings().weight
    stored = load_file(tmp_path / "cut" / "model.safetensors")
    assert sum(tuple(tensor.shape) == (zoo.V, zoo.D) for tensor in stored.values()) == 1


def test_albert_runs_its_shared_block_fewer_times_though_other_numbers_equal_its_depth(
    tmp_path,
):
    model = zoo.of_class("AlbertForMaskedLM", 4, embedding_size=16)
    cut = shortened(model, 2, tmp_path, hf.AutoModelForMaskedLM)
    wanted = layer(walks.albert(model, TEXT_IDS), 2)
    close(cut.base_model(input_ids=TEXT_IDS).last_hidden_state, wanted)
    assert (cut.config.num_hidden_layers, cut.config.num_attention_heads) == (2, 4)


def test_distilbert_and_a_classifier_of_bert_keep_their_heads(tmp_path):
    kind = "DistilBertForSequenceClassification"
    model = zoo.of_class(kind, 4, hidden_dim=64, num_labels=3)
    auto = hf.AutoModelForSequenceClassification
    cut = shortened(model, 2, tmp_path / "distilbert", auto)
    state = model.distilbert.embeddings(TEXT_IDS)
    for block in model.distilbert.transformer.layer[:2]:
        state = walks.first(block(state))
    close(cut.distilbert(input_ids=TEXT_IDS).last_hidden_state, state)
    wanted = model.classifier(model.pre_classifier(state[:, 0]).relu())
    close(cut(input_ids=TEXT_IDS).logits, wanted)
    names = {0: "no", 1: "yes", 2: "perhaps"}
    model = zoo.of_class("BertForSequenceClassification", id2label=names)
    cut = shortened(model, 2, tmp_path / "bert", auto)
    state = layer(walks.bert(model, TEXT_IDS), 2)
    close(cut(input_ids=TEXT_IDS).logits, model.classifier(model.bert.pooler(state)))
    assert cut.config.id2label == names


def test_the_encoder_of_t5_becomes_an_encoder_of_its_own(tmp_path):
    model = zoo.t5()
    cut = shortened(model, 2, tmp_path, hf.AutoModelForTextEncoding, part="encoder")
    wanted = layer(walks.t5_encoder(model, TEXT_IDS), 2)
    close(cut(input_ids=TEXT_IDS).last_hidden_state, wanted)
    assert type(cut) is hf.T5EncoderModel
    assert not any("decoder" in name for name in cut.state_dict())


def test_the_decoder_of_t5_is_cut_within_the_whole(tmp_path):
    model = zoo.t5()
    cut = shortened(model, 1, tmp_path, hf.AutoModelForSeq2SeqLM, part="decoder")
    start = torch.cat([torch.zeros(1, 1, dtype=torch.long), TEXT_IDS[:, :-1]], 1)
    read = cut(input_ids=TEXT_IDS, decoder_input_ids=start, output_hidden_states=True)
    close(read.decoder_hidden_states[-1], layer(walks.t5_decoder(model, TEXT_IDS), 1))
    close(read.encoder_last_hidden_state, layer(walks.t5_encoder(model, TEXT_IDS), 3))


def test_vit_with_its_classifier_and_image_processor(tmp_path):
    model = zoo.vit()
    processor = hf.ViTImageProcessor(size={"height": 16, "width": 16})
    auto = hf.AutoModelForImageClassification
    cut = shortened(model, K, tmp_path, auto, processor)
    state = layer(walks.vit(model, PIXELS))
    close(cut.vit(pixel_values=PIXELS).last_hidden_state, state)
    close(cut(pixel_values=PIXELS).logits, model.classifier(state[:, 0]))
    assert (tmp_path / "cut" / "preprocessor_config.json").is_file()


def test_dinov2_derives_the_names_of_its_stages_from_its_depth(tmp_path):
    model = zoo.of_class("Dinov2Model", 4, **zoo.IMAGE)
    cut = loaded(hf.AutoModel, truncate(model, 2, tmp_path / "cut"))
    state = model(pixel_values=PIXELS, output_hidden_states=True).hidden_states[2]
    close(cut(pixel_values=PIXELS).last_hidden_state, model.layernorm(state))
    assert cut.config.stage_names == ["stem", "stage1", "stage2"]


@pytest.mark.parametrize("part, left", [("encoder", (2, 2)), ("decoder", (3, 1))])
def test_whisper_is_cut_on_one_side_within_the_whole(part, left, tmp_path):
    model, processor = zoo.whisper(), hf.WhisperFeatureExtractor()
    k = 2 if part == "encoder" else 1
    auto = hf.AutoModelForSpeechSeq2Seq
    cut = shortened(model, k, tmp_path, auto, processor, part=part)
    features = zoo.drawn(1, 80, 3000)
    close(
        cut.model.encoder(features).last_hidden_state,
        layer(walks.whisper(model, features), left[0]),
    )
    assert (len(cut.model.encoder.layers), len(cut.model.decoder.layers)) == left
    kept = hf.AutoFeatureExtractor.from_pretrained(tmp_path / "cut")
    assert kept.sampling_rate == 16000


@pytest.mark.parametrize(
    "part, options, inputs, depths",
    [("text", {}, TEXT_IDS, (2, 3)), ("vision", {"part": "vision"}, PIXELS, (3, 2))],
)
def test_a_tower_of_clip_has_its_depth_in_a_nested_config(
    part, options, inputs, depths, tmp_path
):
    model = zoo.clip()
    cut = shortened(model, 2, tmp_path, hf.AutoModel, **options)
    towers = cut.config.text_config, cut.config.vision_config
    assert tuple(tower.num_hidden_layers for tower in towers) == depths
    tower, short = (getattr(each, f"{part}_model") for each in (model, cut))
    wanted = tower(inputs, output_hidden_states=True).hidden_states[2]
    if part == "text":
        wanted = tower.final_layer_norm(wanted)
    close(short(inputs).last_hidden_state, wanted)
    assert f"part {part}\\_model" in (tmp_path / "cut" / "README.md").read_text()


def test_the_model_given_as_an_object_is_left_as_it_was(tmp_path):
    model = zoo.gpt2().train()
    before = state_of(model)
    truncate(model, 1, tmp_path / "cut", processor=word_tokenizer())
    assert state_of(model) == before
