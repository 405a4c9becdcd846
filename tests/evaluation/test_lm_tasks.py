"""Tasks of lm-evaluation-harness at every layer: its own backend is the reference, on truncated models too."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
import yaml
from lm_eval import evaluator, simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from tiny import one_thread
from typed import cli

import layerscope
from layerscope.core.errors import LayerscopeError
from layerscope.evaluation import LayerLM
from layerscope.evaluation.lm_tasks import open_lm_tasks

__all__ = ["cli", "one_thread"]

CHOICES = {
    "output_type": "multiple_choice", "doc_to_text": "{{text}}", "doc_to_choice": "endings", "doc_to_target": "label",
    "metric_list": [
        {"metric": "acc", "aggregation": "mean", "higher_is_better": True},
        {"metric": "acc_norm", "aggregation": "mean", "higher_is_better": True},
    ],
}  # fmt: skip
WORD = {
    "output_type": "loglikelihood", "doc_to_text": "{{text}}", "doc_to_target": "{{' '+endings[0]}}",
    "metric_list": [
        {"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False},
        {"metric": "acc", "aggregation": "mean", "higher_is_better": True},
    ],
}  # fmt: skip
ROLLING = {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}"}
"""Its metrics are the harness's default: perplexities and bits per byte."""
Write = Callable[..., str]


def documents(n: int = 12, longest: int = 90) -> list[dict[str, Any]]:
    """Texts of 1 to `longest` words, beyond a context of 64 too, with endings of one word or several."""
    rng = random.Random(0)
    found = []
    for i in range(n):
        text = " ".join(rng.choices(tiny.WORDS, k=longest if i == 0 else rng.randint(1, 30)))
        endings = [
            " ".join(rng.choices(tiny.WORDS, k=1 if i % 3 else rng.randint(1, 4))) for _ in range(4)
        ]
        found.append({"text": text, "endings": endings, "label": rng.randrange(4)})
    return found


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a task and its documents, and return the path of its file."""

    def written(
        name: str, config: dict[str, Any], rows: list[dict[str, Any]] | None = None, **more: Any
    ) -> str:
        data, path = tmp_path / f"{name}.json", tmp_path / f"{name}.yaml"
        data.write_text(
            "\n".join(map(json.dumps, documents() if rows is None else rows)), encoding="utf-8"
        )
        about = {"data_files": {"test": str(data)}, "cache_dir": str(tmp_path / "cache")}
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


@pytest.fixture(params=[tiny.gpt2, tiny.llama], ids=["gpt2", "llama"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tiny.saved(request.param(), tmp_path / "model", special=False))


@pytest.fixture
def gpt2(tmp_path: Path) -> str:
    return str(tiny.saved(tiny.gpt2(), tmp_path / "tiny-gpt2", special=False))


def judged(lm: Any, *paths: str) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return the harness's results of each task by itself, and the answers to its requests."""
    results, answers = {}, {}
    for path in paths:
        tasks = TaskManager(include_defaults=False).load([path])["tasks"]
        for name, task in tasks.items():
            task.set_config("num_fewshot", task.get_config("num_fewshot") or 0)
            task.set_fewshot_seed(1234)
            found = evaluator.evaluate(lm, {"tasks": {name: task}}, bootstrap_iters=1000)
            results[name] = {
                key: value for key, value in found["results"][name].items() if "," in key
            }
            answers[name] = [answer for doc in found["samples"][name] for (answer,) in doc["resps"]]
    return results, answers


def backend(folder: str | Path, **how: Any) -> HFLM:
    own = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return HFLM(own, tokenizer=hf.AutoTokenizer.from_pretrained(folder), batch_size=4, **how)


def flat(answers: list[Any]) -> list[float]:
    return [float(answer[0] if isinstance(answer, tuple) else answer) for answer in answers]


def same(mine: tuple[dict, dict], reference: tuple[dict, dict]) -> bool:
    """Whether accuracies, errors and greediness are equal, and log-likelihoods but for rounding."""
    for name, answers in reference[1].items():
        if flat(mine[1][name]) != pytest.approx(flat(answers), rel=1e-4, abs=1e-4):
            return False
        if [a[1:] for a in mine[1][name] if isinstance(a, tuple)] != [
            a[1:] for a in answers if isinstance(a, tuple)
        ]:
            return False
        for key, value in reference[0][name].items():
            exact = key.startswith("acc") or isinstance(value, str)
            if mine[0][name][key] != (value if exact else pytest.approx(value, rel=1e-3)):
                return False
    return True


def test_every_layer_is_the_harness_backend_on_the_truncated_model(
    model: str, write: Write, tmp_path: Path
):
    paths = write("choices", CHOICES), write("word", WORD), write("rolling", ROLLING)
    lm = LayerLM(model, progress=False)
    assert lm.layers == (0, 1, 2, 3) and lm.layer == 3
    mine = {}
    for lm.layer in (3, 2, 1):
        mine[lm.layer] = judged(lm, *paths)
    layerscope.truncate(model, layers=[1, 2], out=tmp_path / "cut", progress=False)
    folders = {3: Path(model), 2: tmp_path / "cut" / "layer-2", 1: tmp_path / "cut" / "layer-1"}
    for layer, folder in folders.items():
        reference = judged(backend(folder), *paths)
        assert same(mine[layer], reference), layer
        assert not any(same(mine[other], reference) for other in mine if other != layer), (
            "layers differ"
        )


def test_the_embedding_layer_goes_through_norm_and_head(gpt2: str):
    lm = LayerLM(gpt2, layers=0, progress=False)
    ids, module = [5, 9, 33, 40], hf.GPT2LMHeadModel.from_pretrained(gpt2).double()
    with torch.no_grad():
        states = module.transformer.wte.weight[ids[:-1]] + module.transformer.wpe.weight[:3]
        logs = module.lm_head(module.transformer.ln_f(states)).log_softmax(-1)
    wanted = [float(logs[i, ids[i + 1]]) for i in (1, 2)]
    ((found, greedy),) = lm._loglikelihood_tokens([(("", ""), ids[:2], ids[2:])])
    assert found.tolist() == pytest.approx([sum(wanted)], abs=1e-4)
    assert greedy.tolist() == [logs[1:].argmax(-1).tolist() == ids[2:]]


def test_one_forward_a_text_for_all_layers(gpt2: str, write: Write):
    lm, seen = LayerLM(gpt2, batch_size=1, progress=False), []
    block = lm.model.transformer.h[0]
    block.register_forward_hook(lambda *given: seen.append(1) if given[1][0].shape[1] > 1 else None)
    rows = [{"text": f"w1 w{i}", "endings": ["w1", "w2", "w3", "w4"], "label": 0} for i in range(5)]
    path = write("choices", CHOICES, rows)
    first = judged(lm, path)
    assert len(seen) == 5, "four endings of one word share a forward"
    for lm.layer in (0, 1, 2):
        assert not same(judged(lm, path), first)
    assert len(seen) == 5, "answers of all layers are known"
    lm.layer = 4
    with pytest.raises(LayerscopeError, match="layer 4 is not scored: `layers` are 0, 1, 2, 3"):
        judged(lm, path)


@pytest.mark.parametrize("batch_size", [1, 3, "auto"])
def test_batches_do_not_change_answers(model: str, write: Write, batch_size: int | str):
    path = write("choices", CHOICES)
    assert same(
        judged(LayerLM(model, batch_size=batch_size, progress=False), path),
        judged(backend(model), path),
    )


def test_options_of_the_harness_hold(model: str, write: Write):
    paths = write("choices", CHOICES, num_fewshot=0), write("rolling", ROLLING)
    how = {"max_length": 20, "prefix_token_id": 7, "softmax_dtype": "float64"}
    mine = judged(LayerLM(model, progress=False, **how), *paths)
    assert same(mine, judged(backend(model, **how), *paths))
    assert not same(mine, judged(backend(model), *paths))


def test_half_precision_rounds_as_the_harness_does(gpt2: str, write: Write):
    path, folder = write("choices", CHOICES), Path(gpt2)
    own = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    reference = HFLM(own, tokenizer=hf.AutoTokenizer.from_pretrained(folder), batch_size=1)
    wanted = flat(judged(reference, path)[1]["choices"])
    found = flat(
        judged(LayerLM(gpt2, dtype="bfloat16", batch_size=1, progress=False), path)[1]["choices"]
    )
    assert found == pytest.approx(wanted, rel=0.02)
    assert all(float(torch.tensor(value).bfloat16()) == value for value in found)


def test_simple_evaluate_takes_it_as_an_object_and_by_name(gpt2: str, write: Write):
    path, tasks = write("choices", CHOICES), TaskManager(include_defaults=False)
    lm = LayerLM(gpt2, progress=False)
    lm.layer = 2
    found = simple_evaluate(model=lm, tasks=[path], task_manager=tasks, log_samples=False)
    args = {"pretrained": gpt2, "layers": 2}
    named = simple_evaluate(
        "layerscope", args, [path], task_manager=tasks, batch_size=2, log_samples=False
    )
    assert named["results"] == found["results"]
    with pytest.raises(LayerscopeError, match="leave out `use_cache`"):
        simple_evaluate(
            lm, tasks=[path], task_manager=tasks, use_cache=str(Path(path).parent / "cache")
        )
    with pytest.raises(LayerscopeError, match="has no option 'dtpye', did you mean dtype"):
        LayerLM(gpt2, dtpye="float32")


def test_the_model_given_stays_as_it_is(write: Write):
    module, tokenizer = tiny.llama().train(), tiny.tokenizer(special=False)
    tokenizer.pad_token = None
    before = {name: value.clone() for name, value in module.state_dict().items()}
    judged(LayerLM(module, tokenizer, progress=False), write("choices", CHOICES))
    assert module.training and tokenizer.pad_token is None
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_the_verb_scores_layers_and_goes_on_to_a_model(
    cli, model: str, write: Write, tmp_path: Path
):
    paths = [write("choices", CHOICES), write("word", WORD), write("rolling", ROLLING)]
    tasks = ",".join(f"lm:{path}" for path in [*paths, f"{paths[0]}@acc_norm"])
    out = tmp_path / "out"
    said = cli("evaluate", model, "--tasks", tasks, "--out", out)
    assert "choices (acc)" in said.out, said.err
    found = layerscope.open_evaluation(out)
    reference, _ = judged(backend(model), *paths)
    last = found.scores[(found.scores["layer"] == 3) & (found.scores["kind"] == "layer")].set_index(
        "task"
    )
    assert set(last.index) == {
        "choices (acc)",
        "choices (acc_norm)",
        "word (acc)",
        "rolling (−bits_per_byte)",
    }
    for task, metric in (("choices", "acc"), ("choices", "acc_norm"), ("word", "acc")):
        row, own = last.loc[f"{task} ({metric})"], reference[task]
        assert (
            row["score"] == own[f"{metric},none"] and row["stderr"] == own[f"{metric}_stderr,none"]
        )
        assert row["n"] == 12 and row["low"] == pytest.approx(row["score"] - 1.96 * row["stderr"])
    bits = last.loc["rolling (−bits_per_byte)"]
    assert (
        bits["score"] == pytest.approx(-reference["rolling"]["bits_per_byte,none"])
        and bits.isna()["stderr"]
    )
    assert found.table().index.tolist() == [0, 1, 2, 3] and found.missing == 0
    assert found.baseline().iloc[0].to_dict() == last["score"].to_dict()
    again = cli("evaluate", model, "--tasks", tasks, "--out", out)
    assert again.err.count("results are there already") == 4
    assert layerscope.open_evaluation(out).scores.equals(found.scores)
    chosen = layerscope.select(out, cost=False, progress=False)
    assert chosen.layer in (1, 2, 3) and "token by token" in said.out
    cut = layerscope.truncate(out, 2, tmp_path / "cut", progress=False)
    shallow, _ = judged(backend(cut), paths[0])
    assert found.table().loc[2, "choices (acc)"] == shallow["choices"]["acc,none"]


def test_it_stands_beside_other_tasks(gpt2: str, write: Write, texts: str):
    tasks = [f"knn-probe:{texts}", f"lm:{write('choices', CHOICES)}"]
    found = layerscope.evaluate(gpt2, tasks, layers=[1, 3], pooling="mean", progress=False)
    layers = found.scores[found.scores["kind"] == "layer"]
    assert found.missing == 0 and [
        *zip(layers["task"], layers["layer"], layers["pooling"], strict=True)
    ] == [
        (task, layer, pooling)
        for task, pooling in (("choices (acc)", "tokens"), ("topics (kNN probe)", "mean"))
        for layer in (1, 3)
    ]
    assert layerscope.select(found, pooling="tokens", cost=False, progress=False).layer in (1, 3)


def test_samples_are_drawn_with_the_seed(gpt2: str, write: Write):
    path = write("choices", CHOICES, documents(30))
    (few,) = open_lm_tasks(path, samples=5, seed=3)
    (other,) = open_lm_tasks(path, samples=5, seed=4)
    assert (
        len(few.data) == len(other.data) == 20
        and few.data.fingerprint() != other.data.fingerprint()
    )
    found = layerscope.evaluate(gpt2, f"lm:{path}", samples=5, seed=3, progress=False)
    assert (found.scores["n"] == 5).all()
    whole = judged(backend(gpt2), path)[1]["choices"]
    lm = LayerLM(gpt2, progress=False)
    answers = lm.loglikelihood(few.kind.probe.args[0].instances, disable_tqdm=True)
    chosen = np.sort(np.random.default_rng(3).choice(30, 5, replace=False))
    assert flat(answers) == pytest.approx(
        [flat(whole)[4 * i + n] for i in chosen for n in range(4)], rel=1e-4
    )


def test_few_shot_prompts_are_the_harness_own(gpt2: str, write: Write):
    path = write("choices", CHOICES, documents(12, longest=12), num_fewshot=2, fewshot_split="test")
    found = layerscope.evaluate(gpt2, f"lm:{path}", progress=False)
    reference, _ = judged(backend(gpt2), path)
    assert found.table().loc[3, "choices (acc)"] == reference["choices"]["acc,none"]
    (task,) = open_lm_tasks(path)
    assert min(len(text.split()) for text in task.data.samples) > 5


def test_a_trained_model_tells_endings_apart(shared: Path, write: Write):
    model = shared / "models" / "stories260K"
    rows = [
        {"text": "Once upon a", "endings": ["time", "spoon", "under", "blue"], "label": 0},
        {"text": "The little girl was very", "endings": ["happy", "of", "the", "and"], "label": 0},
        {"text": "They played in the", "endings": ["was", "park", "said", "went"], "label": 1},
    ]
    path = write("stories", CHOICES, rows)
    lm = LayerLM(model, progress=False)
    found = judged(lm, path)
    assert same(found, judged(backend(model), path))
    lm.layer = 0
    assert found[0]["stories"]["acc,none"] > judged(lm, path)[0]["stories"]["acc,none"]
