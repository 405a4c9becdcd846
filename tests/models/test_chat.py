"""`--chat`: texts and conversations are wrapped by the tokenizer's own template, and the run says so."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from typed import refused

import layerscope
from layerscope.inputs import augment, open_corpus
from layerscope.inputs.samples import Conversation
from layerscope.models import LoadOptions, find_layers, load

TEMPLATE = (
    "{% for m in messages %}{{ {'user': 'w1', 'assistant': 'w2', 'system': 'w3'}[m.role] }} {{ m.content }} "
    "{% endfor %}{% if add_generation_prompt %}w4{% endif %}"
)
TALKS = [
    [
        {"role": "system", "content": "w20 w21"},
        {"role": "user", "content": text},
        {"role": "assistant", "content": "w22"},
    ][: 2 + i % 2]
    for i, text in enumerate(tiny.texts(40, seed=4))
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat") / "tuned"
    tiny.llama().save_pretrained(folder)
    tokenizer = tiny.tokenizer(special=False)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def in_template(folder, messages):
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    answers = messages[-1]["role"] != "assistant"
    return tokenizer.apply_chat_template(
        messages, add_generation_prompt=answers, return_dict=False
    )


def test_texts_and_conversations_are_wrapped_as_the_tokenizer_does(folder, tmp_path):
    (tmp_path / "talks.jsonl").write_text(
        "\n".join(json.dumps({"messages": talk}) for talk in TALKS)
    )
    corpus = open_corpus(tmp_path / "talks.jsonl")
    loaded = load(str(folder), LoadOptions(chat=True))
    encoder = find_layers(loaded, "text", tiny.texts(4)).encoder
    for sample, talk in zip(corpus.samples, TALKS, strict=True):
        wanted = in_template(folder, talk)
        assert encoder.ids([sample], whole=True) == [wanted]
        assert sample == "\n".join(each["content"] for each in talk)
        assert pickle.loads(pickle.dumps(sample)).messages == sample.messages
    text = tiny.texts(3)[2]
    alone = in_template(folder, [{"role": "user", "content": text}])
    assert encoder.ids([text], whole=True) == [alone] and alone[0] == 5
    view = augment(corpus.samples[1], "text", seed=0, sample_id=1, view=1)
    assert isinstance(view, Conversation) and view != corpus.samples[1]
    assert [each["role"] for each in view.messages] == ["system", "user", "assistant"]


def test_profile_and_evaluate_read_the_wrapped_texts(folder, tmp_path, cli):
    texts = tiny.texts(60, seed=5, longest=12)
    labels = np.where([text > "w7" for text in texts], "yes", "no")
    path = tmp_path / "data.csv"
    pd.DataFrame({"text": texts, "label": labels}).to_csv(path, index=False)
    done = cli("profile", folder, "--data", path, "--chat", "--views", 0, "--pooling",
               "last", "--out", tmp_path / "run")  # fmt: skip
    assert done.status == 0 and "chat template" in done.err
    run = layerscope.open_run(tmp_path / "run")
    assert run.info["model"]["chat"] is True
    again = cli("profile", folder, "--data", path, "--views", 0, "--pooling", "last",
                "--out", tmp_path / "run")  # fmt: skip
    assert again.status == 2, "another run"
    scores = [
        layerscope.evaluate(given, f"linear-probe:{path}", pooling="last", chat=chat)
        .scores.set_index("layer")["score"][2]
        for given, chat in ((folder, True), (run, False), (folder, False))
    ]  # fmt: skip
    assert scores[0] == scores[1] and scores[0] != scores[2]


def test_generate_and_lens_answer_the_wrapped_prompt(folder):
    made = layerscope.generate(folder, ["w30 w31"], max_new_tokens=5, chat=True)
    ids = torch.tensor([in_template(folder, [{"role": "user", "content": "w30 w31"}])])
    module = hf.AutoModelForCausalLM.from_pretrained(folder).eval()
    new = module.generate(ids, max_new_tokens=5, do_sample=False)[0, ids.shape[1] :]
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    wanted = tokenizer.decode(new, skip_special_tokens=True)
    assert made.texts["text"].item().strip() == wanted.strip()
    plain, chat = (
        layerscope.lens(folder, prompt="w30 w31", chat=chat).as_dict()
        for chat in (False, True)
    )
    assert plain != chat


def test_what_has_no_place_for_a_template_is_refused(folder, tmp_path):
    (tmp_path / "novel.txt").write_text("\n".join(tiny.texts(80)))
    with refused("packed into windows"):
        layerscope.profile(folder, tmp_path / "novel.txt", chat=True)
    words = [[f"w{i}", f"w{i + 1}"] for i in range(60)]
    frame = pd.DataFrame({"tokens": words, "labels": [["a", "b"]] * 60})
    with refused("`chat` wraps whole texts"):
        layerscope.evaluate(folder, {"token-probe": frame}, chat=True)


def test_a_model_without_a_template_is_refused_in_one_line(tmp_path, cli):
    tiny.saved(tiny.llama(), tmp_path / "base")
    for words in (("profile", "--data", "stdlib-docs"), ("generate", "--prompt", "w1")):
        done = cli(words[0], tmp_path / "base", *words[1:], "--chat")
        assert done.status == 2
        assert done.line == (
            "base has no chat template: leave --chat out, or give an instruction-tuned model"
        )
