"""Tasks of lm-evaluation-harness at every layer: its own backend is the reference, on truncated models too."""

import json
import random
from pathlib import Path

import lm_eval
import numpy as np
import pytest
import tiny
import torch
import transformers as hf
import yaml
from lm_eval import evaluator
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from typed import refused

import layerscope
from layerscope.evaluation import lm_tasks
from layerscope.evaluation.layer_lm import LayerLM
from layerscope.evaluation.lm_tasks import open_lm_tasks
from layerscope.models import LoadOptions, Override, find_layers, load
from layerscope.models.inspection import made_up_samples

CHOICES = {
    "output_type": "multiple_choice", "doc_to_text": "{{text}}", "doc_to_choice": "endings", "doc_to_target": "label",
    "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
}  # fmt: skip
WORD = {
    "output_type": "loglikelihood", "doc_to_text": "{{text}}", "doc_to_target": "{{' '+endings[0]}}",
    "metric_list": [{"metric": "perplexity"}, {"metric": "acc"}],
}  # fmt: skip


def documents(n=12):
    """Texts of 1 to 90 words, beyond a context of 64 too, with endings of one word or several."""
    rng = random.Random(0)
    found = []
    for i in range(n):
        text = " ".join(rng.choices(tiny.WORDS, k=90 if i == 0 else rng.randint(1, 30)))
        endings = [
            " ".join(rng.choices(tiny.WORDS, k=1 if i % 3 else rng.randint(1, 4)))
            for _ in range(4)
        ]
        found.append({"text": text, "endings": endings, "label": rng.randrange(4)})
    return found


@pytest.fixture
def write(tmp_path):
    """Write a task and its documents, and return the path of its file."""

    def written(name, config, rows=None, **more):
        data, path = tmp_path / f"{name}.json", tmp_path / f"{name}.yaml"
        data.write_text(
            "\n".join(map(json.dumps, documents() if rows is None else rows)),
            encoding="utf-8",
        )
        about = {
            "data_files": {"test": str(data)},
            "cache_dir": str(tmp_path / "cache"),
        }
        whole = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": about,
            "test_split": "test",
            **config,
            **more,
        }
        path.write_text(yaml.safe_dump(whole), encoding="utf-8")
        return str(path)

    return written


@pytest.fixture
def gpt2(tmp_path):
    return str(tiny.saved(tiny.gpt2(), tmp_path / "tiny-gpt2"))


def judged(lm, *paths):
    """Return the harness's results of each task by itself, and the answers to its requests, by task."""
    numbers = {}
    for path in paths:
        tasks = TaskManager(include_defaults=False).load([path])["tasks"]
        for name, task in tasks.items():
            task.set_config("num_fewshot", task.get_config("num_fewshot") or 0)
            task.set_fewshot_seed(1234)
            found = evaluator.evaluate(
                lm, {"tasks": {name: task}}, bootstrap_iters=1000
            )
            results = found["results"][name]
            numbers |= {
                (name, key): value for key, value in results.items() if "," in key
            }
            answers = [
                answer for doc in found["samples"][name] for (answer,) in doc["resps"]
            ]
            # log-likelihoods, and whether each is of the likeliest tokens
            numbers |= {
                (name, i): value for i, value in enumerate(np.ravel(answers).tolist())
            }
    return numbers


def backend(folder, **how):
    own = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return HFLM(
        own, tokenizer=hf.AutoTokenizer.from_pretrained(folder), batch_size=4, **how
    )


def layers_of(folder, layers=(0, 1, 2, 3)):
    loaded = load(str(folder), LoadOptions(), None)
    return LayerLM(find_layers(loaded, *made_up_samples(loaded), Override()), layers)


def test_every_layer_is_the_harness_backend_on_the_truncated_model(
    llama, write, tmp_path
):
    folders = {3: llama, 2: tmp_path / "two", 1: tmp_path / "one"}
    for layer in (1, 2):
        layerscope.truncate(llama, layer, folders[layer])
    for path in write("choices", CHOICES), write("word", WORD):
        lm, numbers = layers_of(llama), {}
        for lm.layer in (3, 2, 1):
            numbers[lm.layer] = judged(lm, path)
        for layer, folder in folders.items():
            reference = pytest.approx(judged(backend(folder), path), rel=1e-4, abs=1e-4)
            assert [other for other in numbers if numbers[other] == reference] == [
                layer
            ]


def test_the_embedding_layer_goes_through_norm_and_head(gpt2):
    lm = layers_of(gpt2, [0])
    ids, module = [5, 9, 33, 40], hf.GPT2LMHeadModel.from_pretrained(gpt2).double()
    with torch.no_grad():
        states = (
            module.transformer.wte.weight[ids[:-1]] + module.transformer.wpe.weight[:3]
        )
        logs = module.lm_head(module.transformer.ln_f(states)).log_softmax(-1)
    wanted = [float(logs[i, ids[i + 1]]) for i in (1, 2)]
    ((likelihood, greedy),) = lm._loglikelihood_tokens([(("", ""), ids[:2], ids[2:])])
    assert likelihood.tolist() == pytest.approx([sum(wanted)], abs=1e-4)
    assert greedy.tolist() == [logs[1:].argmax(-1).tolist() == ids[2:]]


def test_one_forward_a_text_for_all_layers(gpt2, write):
    lm, seen = layers_of(gpt2), []
    block = lm.model.transformer.h[0]
    block.register_forward_hook(
        lambda *given: seen.append(len(given[1][0]) * (given[1][0].shape[1] > 1))
    )
    rows = [
        {"text": f"w1 w{i}", "endings": ["w1", "w2", "w3", "w4"], "label": 0}
        for i in range(5)
    ]
    path = write("choices", CHOICES, rows)
    first = judged(lm, path)
    assert sum(seen) == 5, "four endings of one word share a forward"
    for lm.layer in (0, 1, 2):
        assert judged(lm, path) != pytest.approx(first)
    assert sum(seen) == 5, "answers of all layers are known"


def test_the_model_in_memory_stays_as_it_is(write):
    module, tokenizer = tiny.llama().train(), tiny.tokenizer(special=False)
    tokenizer.pad_token = None
    before = {name: value.clone() for name, value in module.state_dict().items()}
    task = f"lm:{write('choices', CHOICES)}"
    layerscope.evaluate(module, task, processor=tokenizer)
    assert module.training and tokenizer.pad_token is None
    assert all(
        torch.equal(value, before[name]) for name, value in module.state_dict().items()
    )


def test_the_verb_scores_layers_and_goes_on_to_a_model(
    cli, llama, write, texts, tmp_path
):
    paths = [write("choices", CHOICES), write("word", WORD)]
    tasks = ",".join(f"lm:{path}" for path in [*paths, f"{paths[0]}@acc_norm"])
    words = "--tasks", tasks, "--data", f"knn-probe:{texts}", "--pooling", "mean"
    out = tmp_path / "out"
    said = cli("evaluate", llama, *words, "--out", out)
    assert "choices (acc)" in said.out, said.err
    scores = layerscope.open_evaluation(out).scores
    reference = judged(backend(llama), *paths)
    last = scores[(scores["layer"] == 3) & (scores["kind"] == "layer")].set_index(
        "task"
    )
    names = ["choices (acc)", "choices (acc_norm)", "word (acc)", "topics (kNN probe)"]
    assert set(last.index) == set(names)
    for name in names[:3]:
        task, metric = name.removesuffix(")").split(" (")
        row = last.loc[name]
        assert row["score"] == reference[task, f"{metric},none"]
        assert row["stderr"] == reference[task, f"{metric}_stderr,none"]
        assert row["n"] == 12
        assert row["low"] == pytest.approx(row["score"] - 1.96 * row["stderr"])
        assert row["pooling"] == "tokens"
    again = cli("evaluate", llama, *words, "--out", out)
    assert again.err.count("results are there already") == 4
    evaluation = layerscope.open_evaluation(out)
    assert evaluation.scores.equals(scores) and evaluation.missing == 0
    chosen = layerscope.select(out, pooling="tokens", cost=False)
    assert chosen.layer in (1, 2, 3) and "token by token" in said.out


def test_samples_are_drawn_with_the_seed(gpt2, write):
    path = write("choices", CHOICES, documents(30))
    (few,) = open_lm_tasks(path, samples=5, seed=3)
    (other,) = open_lm_tasks(path, samples=5, seed=4)
    assert len(few.data) == len(other.data) == 20
    assert few.data.fingerprint() != other.data.fingerprint()
    evaluation = layerscope.evaluate(gpt2, f"lm:{path}", samples=5, seed=3)
    assert (evaluation.scores["n"] == 5).all()


def test_what_cannot_be_opened(write, tmp_path, monkeypatch):
    # to read all of the harness's files takes long
    arc = Path(lm_eval.__file__).parent / "tasks" / "arc"
    manager = TaskManager(include_defaults=False, include_path=arc)
    monkeypatch.setattr(lm_tasks, "_manager", lambda _: manager)
    broken, choices = tmp_path / "broken.yaml", write("asks", CHOICES)
    broken.write_text("a: [b")
    writes = {
        "output_type": "generate_until",
        "doc_to_text": "{{text}}",
        "doc_to_target": "x",
    }
    wrong = {
        "arc_easi": "lm task 'arc_easi' does not exist, did you mean arc_easy?",
        "arc_easy": "lm task 'arc_easy' cannot be loaded: its data are not cached and the hub cannot be reached",
        str(tmp_path / "missing.yaml"): "missing.yaml' does not exist",
        str(broken): "broken.yaml' cannot be loaded: ParserError",
        write(
            "writes", writes
        ): "lm task 'writes' is of the type generate_until: evaluate scores",
        f"{choices}@f1": "lm task 'asks' has no metric 'f1' of which more is better: it has acc",
    }
    for spec, line in wrong.items():
        with refused() as error:
            open_lm_tasks(spec)
        assert line in str(error.value)


def test_what_cannot_be_scored(bert, gpt2, write):
    task = {"lm": write("choices", CHOICES)}
    broken = tiny.broken_llama(documents()[1]["text"].split()[0])
    for model, options, line in (
        (
            str(bert),
            {},
            "bert is not a causal language model of transformers with a tokenizer",
        ),
        (gpt2, {"sites": "raw"}, "lm tasks read layers at the site normed"),
        (
            broken,
            {"processor": tiny.tokenizer(special=False)},
            "LlamaForCausalLM gives NaN at layer",
        ),
    ):
        with refused(line):
            layerscope.evaluate(model, task, **options)
