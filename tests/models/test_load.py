import json

import torch
import transformers as hf
from models.test_capture import TEXTS, layered, states
from models.tokenizer import saved, word_tokenizer
from models.zoo import close, llama, of_class, of_family
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.models import Pooling, Transformer
from typed import refused

import layerscope
from layerscope.models import LoadOptions, Override, find_layers, load
from layerscope.models.checks import embedded
from layerscope.models.pooling import pool


def find(loaded, samples=TEXTS):
    return find_layers(loaded, "text", samples, Override())


def test_a_folder_keeps_the_head_it_was_saved_with(tmp_path):
    model = llama()
    loaded = load(str(saved(model, tmp_path / "tiny")), LoadOptions())
    assert type(loaded.module) is hf.LlamaForCausalLM and loaded.name == "tiny"
    one, two = states(find(loaded), TEXTS), states(layered(model), TEXTS)
    assert all(torch.equal(one[key], two[key]) for key in two)


def test_a_head_without_weights_is_left_out(tmp_path):
    folder = saved(of_class("BertModel"), tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"architectures": ["BertForSequenceClassification"]})
    )
    loaded = load(str(folder), LoadOptions())
    assert type(loaded.module) is hf.BertModel
    assert any("the head is left out" in note for note in loaded.notes)
    assert find(loaded).lens is None


def test_missing_weights_of_the_model_itself_are_an_error(tmp_path):
    folder = saved(llama(), tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with refused(
        r"lacks weights the model needs \(model.layers.1.mlp.up_proj.weight, 1 in all\)",
    ):
        load(str(folder), LoadOptions())


def test_minilm_is_what_sentence_transformers_serves():
    loaded = load("minilm", LoadOptions())
    facts = loaded.pooling, loaded.max_length, loaded.name
    assert facts == (("mean",), 256, "all-MiniLM-L6-v2")
    texts = ["A cat sat on the mat.", "Entropy rises.", "One"]
    scope = find(loaded, texts)
    inputs = scope.encoder.batch(texts)
    last = states(scope, texts)["raw", 6]
    mine = torch.nn.functional.normalize(
        pool(last, scope.mask(inputs, last), "mean"), dim=-1
    )
    served = torch.from_numpy(
        SentenceTransformer(embedded("minilm"), device="cpu").encode(texts)
    )
    close(mine, served)


def test_a_cross_encoder_is_the_classifier_of_its_folder(tmp_path):
    classifier = of_class("BertForSequenceClassification", num_labels=3)
    plain = saved(classifier, tmp_path / "plain")
    model = CrossEncoder(str(plain), max_length=20, device="cpu")
    # with a modules.json, as a SentenceTransformer has
    model.save_pretrained(tmp_path / "own")
    head = "3 classes for every sample"
    for source, longest in ((model, 20), (tmp_path / "own", 20), (plain, 64)):
        (inspected,) = layerscope.inspect(source)
        shown = inspected.head, inspected.kind, inspected.depth, inspected.max_length
        assert shown == (head, "BertForSequenceClassification", 3, longest)
    tokenizer = hf.AutoTokenizer.from_pretrained(plain)
    assert load(model, LoadOptions(), tokenizer).processor is tokenizer


def test_a_sentence_transformer_object_with_its_prompt_and_cls_pooling(tmp_path):
    folder = saved(of_class("BertModel"), tmp_path / "b")
    transformer = Transformer(str(folder), max_seq_length=16)
    model = SentenceTransformer(
        modules=[transformer, Pooling(32, pooling_mode="cls")],
        prompts={"query": "w50 "},
        default_prompt_name="query",
        device="cpu",
    )
    loaded = load(model, LoadOptions())
    assert (loaded.pooling, loaded.max_length, loaded.prompt) == (("cls",), 16, "w50 ")
    scope = find(loaded)
    assert scope.encoder.ids(TEXTS[2:3]) == [[50, 40]]


def test_a_peft_adapter_folder(tmp_path):
    base = saved(llama(), tmp_path / "base")
    adapted = get_peft_model(
        hf.AutoModelForCausalLM.from_pretrained(base),
        LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False),
    )
    adapted.save_pretrained(tmp_path / "adapter")
    loaded = load(str(tmp_path / "adapter"), LoadOptions())
    scope = find(loaded)
    base = hf.AutoModelForCausalLM.from_pretrained(base)
    merged = PeftModel.from_pretrained(base, tmp_path / "adapter").merge_and_unload()
    mine, expected = states(scope, TEXTS), states(layered(merged.eval()), TEXTS)
    torch.testing.assert_close(
        mine["raw", 3][0], expected["raw", 3][0], rtol=1e-4, atol=1e-4
    )
    assert scope.lens is not None


def test_dtype_and_device(tmp_path):
    folder = str(saved(of_class("BertModel").half(), tmp_path / "m"))

    def dtype(**options):
        return next(load(folder, LoadOptions(**options)).module.parameters()).dtype

    assert dtype() == torch.float32  # half precision is slow on a CPU
    assert dtype(dtype="bfloat16") == torch.bfloat16


def test_position_tables_limit_the_length():
    roberta = of_family("roberta")
    scope = layered(roberta)
    assert scope.max_length == 64  # 66 rows, of which RoBERTa leaves two empty
    with refused("max length 65 is beyond the model's 64 positions"):
        find_layers(
            load(roberta, LoadOptions(), word_tokenizer()),
            "text",
            TEXTS,
            Override(),
            max_length=65,
            prompt="",
        )
