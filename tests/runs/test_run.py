"""What a run gives back: its table, series, frames and states, held to computations of the test's own."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch

import layerscope
from layerscope import LayerscopeError, metrics
from layerscope.inputs import open_corpus
from layerscope.probes import knn_probe, linear_probe
from layerscope.profiling import plan
from layerscope.runs import COLUMNS

TEXTS = tiny.texts(40)
LABELS = [i % 3 for i in range(40)]


def profile(model: Any, out: Path, data: Any = TEXTS, **options: Any) -> layerscope.Run:
    special = "bert" in type(model).__name__.lower()
    defaults = {"processor": tiny.tokenizer(special=special), "progress": False, "views": 0}
    return layerscope.profile(model, data, out=out, **defaults | options)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> layerscope.Run:
    """A language model with everything at once."""
    out = tmp_path_factory.mktemp("run") / "lm"
    options = {"pooling": "mean,last", "alpha": [1.0, 2.0], "lens_tokens": None, "views": 2}
    return profile(tiny.llama(), out, (TEXTS, LABELS), **options)


def test_the_table_is_the_long_frame(run) -> None:
    table = run.table()
    assert {name: str(dtype) for name, dtype in table.dtypes.items()} == COLUMNS
    assert set(table["part"]) == {"model"} or table["part"].nunique() == 1
    for column in ("variant", "pooling", "site_b"):
        assert all(value is None or isinstance(value, str) for value in table[column])
    assert table["step"].isna().all()
    assert set(table["metric"]) - {"zero_steps", "linear_probe_c"} == set(metrics_of_a_language_model())
    keys = ["metric", "variant", "layer", "site", "layer_b", "site_b", "pooling"]
    assert not table.duplicated(keys).any()
    pd.testing.assert_frame_equal(layerscope.open_run(run.path).table(), table)


def metrics_of_a_language_model() -> list[str]:
    from layerscope.runs.registry import SETS

    return list(SETS["default"])


def test_a_metric_is_a_series_by_layer(run) -> None:
    series = run.metric("curvature")
    assert isinstance(series, pd.Series) and list(series.index) == [0, 1, 2, 3] and series.index.name == "layer"
    frame = run.samples()
    own = frame[(frame["metric"] == "curvature") & (frame["site"] == "raw")].groupby("layer")["value"].mean()
    np.testing.assert_allclose(series, own, rtol=1e-6)
    assert list(run.metric("perplexity").index) == [0, 1, 2, 3]
    assert list(run.metric("dataset_entropy", site="normed").index) == [3]
    two = run.metric("dataset_entropy", variant="alpha=2", pooling="last")
    own = [metrics.dataset_entropy(run.pooled(layer, pooling="last"), alpha=2.0) for layer in range(4)]
    np.testing.assert_allclose(two, own, rtol=1e-6)


def test_pairs_are_a_square_frame(run) -> None:
    names = [0, 1, 2, 3, "final"]
    for name, function in (("cosine_similarity", metrics.cosine_similarity), ("cka", metrics.cka)):
        square = run.metric(name, pooling="mean")
        assert list(square.index) == names and list(square.columns) == names
        states = [run.pooled(layer) for layer in range(4)] + [run.pooled(3, "final")]
        own = [[float(np.mean(np.asarray(function(a, b)))) for b in states] for a in states]
        np.testing.assert_allclose(square.to_numpy(dtype=float), own, rtol=1e-6, atol=1e-6)
    raw = run.metric("cka", site="raw")
    assert list(raw.index) == [0, 1, 2, 3]


def test_samples_hold_what_is_averaged(run) -> None:
    frame = run.samples()
    assert {"sample", "name", "label", "length", "metric", "variant", "layer", "site", "pooling", "value"} == set(
        frame.columns
    )
    lengths = frame.drop_duplicates("sample").set_index("sample")["length"].sort_index()
    assert lengths.tolist() == [len(text.split()) for text in TEXTS]
    cosine = frame[frame["metric"] == "cosine_to_last"]
    states = run.pooled(1, pooling="position"), run.pooled(3, "normed", pooling="position")
    own = np.asarray(metrics.cosine_similarity(*states))
    mine = cosine[(cosine["layer"] == 1) & (cosine["site"] == "raw")].set_index("sample")["value"].sort_index()
    np.testing.assert_allclose(mine, own, rtol=1e-6, atol=1e-6)


def states_of(model: Any, text: str) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Raw states of layers 0..L of one text by hooks of the test's own, and the token ids."""
    ids = torch.tensor([tiny.tokenizer(special=False)(text)["input_ids"]])
    seen: list[torch.Tensor] = []
    blocks = model.model.layers
    handles = [blocks[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))]
    handles += [
        b.register_forward_hook(lambda _, __, out: seen.append(out[0] if isinstance(out, tuple) else out))
        for b in blocks
    ]
    with torch.no_grad():
        model(input_ids=ids)
    for handle in handles:
        handle.remove()
    return [state[0] for state in seen], ids[0]


def test_pooled_states_stand_in_the_order_of_the_data(run) -> None:
    model = tiny.llama()
    for i in (0, 7, 39):
        states, _ = states_of(model, TEXTS[i])
        for layer, state in enumerate(states):
            np.testing.assert_allclose(run.pooled(layer)[i], state.mean(0), atol=1e-5)
            np.testing.assert_allclose(run.pooled(layer, pooling="last")[i], state[-1], atol=1e-5)
            normed = model.model.norm(state).detach()
            np.testing.assert_allclose(run.pooled(layer, "normed")[i], normed.mean(0), atol=1e-5)
    assert run.pooled(0).dtype == np.float32 and run.pooled(0).shape == (40, 32)
    np.testing.assert_array_equal(run.pooled(-1), run.pooled(3))
    np.testing.assert_array_equal(run.pooled(3, "final"), run.pooled(3, "normed"))


@pytest.mark.parametrize(
    ("ask", "line"),
    [
        (lambda run: run.pooled(13), "layer 13 does not exist: this model has layers 0..3"),
        (lambda run: run.pooled(-5), "layer -5 does not exist: this model has layers 0..3"),
        (lambda run: run.pooled(0, "norm"), "site 'norm' is not in this run: it has raw, normed"),
        (lambda run: run.pooled(0, pooling="cls"), "pooling 'cls' is not in this run: it has mean, last, position"),
        (lambda run: run.metric("curvature", variant="x"), "variant 'x' is not there for curvature: it has none"),
        (lambda run: run.metric("dime", pooling="cls"), "pooling 'cls' is not there for dime: it has mean, last"),
        (
            lambda run: run.metric("dime", variant="N=7"),
            "variant 'N=7' is not there for dime: it has N=40,alpha=1, N=40,alpha=2",
        ),
        (lambda run: run.metric("cka", site="attn"), "site 'attn' is not there for cka: it has raw, normed"),
        (lambda run: run.metric("dime", site="attn"), "site 'attn' is not there for dime: it has raw, normed"),
    ],
)
def test_wrong_names_are_one_line(run, ask, line) -> None:
    with pytest.raises(LayerscopeError) as error:
        ask(run)
    assert str(error.value) == line


def test_an_unknown_metric_lists_those_of_the_run(run) -> None:
    with pytest.raises(LayerscopeError) as error:
        run.metric("curvatur")
    assert str(error.value).startswith("metric 'curvatur' is not in this run, did you mean curvature?: it has ")


def test_the_lens_reads_what_the_model_would_say(run) -> None:
    """Accuracy and perplexity at layer L are those of output.logits over every position; earlier ones of the head."""
    model = tiny.llama()
    hits, losses, first_stays = [[] for _ in range(4)], [[] for _ in range(4)], []
    for text in TEXTS:
        states, ids = states_of(model, text)
        if len(ids) < 2:
            continue
        with torch.no_grad():
            logits = [model.lm_head(model.model.norm(state)) for state in states]
            own = model(input_ids=ids[None]).logits[0]
        torch.testing.assert_close(logits[-1], own)
        for layer, rows in enumerate(logits):
            hits[layer] += (rows[:-1].argmax(-1) == ids[1:]).tolist()
            losses[layer] += torch.nn.functional.cross_entropy(rows[:-1], ids[1:], reduction="none").tolist()
        tops = torch.stack([rows[:-1].argmax(-1) for rows in logits])
        first_stays += [next(k for k in (1, 2, 3) if len(set(column[k:])) == 1) for column in tops.T.tolist()]
    np.testing.assert_allclose(run.metric("layer_accuracy"), [np.mean(h) for h in hits], rtol=1e-6)
    np.testing.assert_allclose(run.metric("perplexity"), [math.exp(np.mean(x)) for x in losses], rtol=1e-4)
    np.testing.assert_allclose(run.metric("saturation_layer")[3], np.mean(first_stays), rtol=1e-6)
    shares = [np.mean([f <= k for f in first_stays]) for k in (1, 2, 3)]
    np.testing.assert_allclose(run.metric("saturated"), shares, rtol=1e-6)
    table = run.table()
    assert set(table[table["metric"] == "perplexity"]["n"]) == {len(hits[0])}


def test_a_share_of_the_positions_is_seeded(tmp_path: Path) -> None:
    runs = [
        profile(tiny.llama(), tmp_path / n, lens_tokens=50, metrics="perplexity", seed=s)
        for n, s in zip("abc", (0, 0, 1), strict=True)
    ]
    first, same, other = (run.metric("perplexity") for run in runs)
    pd.testing.assert_series_equal(first, same)
    assert not np.allclose(first, other)
    assert set(runs[0].table()["n"]) == {50}


def test_every_position_is_read_unless_the_head_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = tiny.texts(40, longest=30)
    every, auto = (
        profile(tiny.llama(), tmp_path / str(n), texts, lens_tokens=n, metrics="perplexity") for n in ("all", "auto")
    )
    pd.testing.assert_frame_equal(every.table(), auto.table())
    assert auto.table()["n"].min() > plan.LENS_LEAST and (auto.table()["stderr"] > 0).all()
    monkeypatch.setattr(plan, "LENS_WHOLE", 1000)
    share = profile(tiny.llama(), tmp_path / "share", texts, metrics="perplexity")
    assert set(share.table()["n"]) == {plan.LENS_LEAST}


def test_a_classifier_is_held_to_its_labels(tmp_path: Path) -> None:
    model, processor = tiny.classifier(), tiny.tokenizer(special=True)
    run = profile(model, tmp_path / "run", (TEXTS, LABELS), metrics="layer_accuracy,saturation_layer")
    with torch.no_grad():
        predicted = [int(model(**processor(text, return_tensors="pt")).logits.argmax()) for text in TEXTS]
    assert run.metric("layer_accuracy")[3] == pytest.approx(np.mean(np.array(predicted) == np.array(LABELS)))
    named = profile(model, tmp_path / "named", (TEXTS, [f"LABEL_{i}" for i in LABELS]), metrics="layer_accuracy")
    pd.testing.assert_series_equal(named.metric("layer_accuracy"), run.metric("layer_accuracy"))


def test_probes_are_those_of_the_public_functions(run) -> None:
    for layer in (0, 3):
        states = run.pooled(layer, "normed", "last")
        own = linear_probe(states, LABELS, seed=0)
        assert run.metric("linear_probe", pooling="last")[layer] == pytest.approx(own.mean)
        own = knn_probe(states, LABELS, k=10, seed=0)
        assert run.metric("knn_probe", pooling="last")[layer] == pytest.approx(own.mean)
    rows = run.table()
    rows = rows[rows["metric"] == "linear_probe"]
    assert set(rows["n"]) == {40} and set(rows["site"]) == {"normed"} and (rows["stderr"] > 0).all()


def test_samples_are_drawn_by_seed(tmp_path: Path) -> None:
    runs = [
        profile(tiny.bert(), tmp_path / n, samples=10, seed=s, metrics="curvature")
        for n, s in zip("abc", (0, 0, 1), strict=True)
    ]
    names = [list(run.folder.plan.sort_values("sample")["name"]) for run in runs]
    assert names[0] == names[1] != names[2] and len(names[0]) == 10
    assert names[0] == sorted(names[0], key=int)
    for i, name in enumerate(names[0]):
        assert runs[0].folder.plan.set_index("sample")["length"][i] == len(TEXTS[int(name)].split()) + 2


def test_views_are_seeded_and_blocks_are_dropped_and_counted(tmp_path: Path) -> None:
    texts = tiny.texts(300, longest=6)
    options = {"metrics": "infonce,infonce_bound,dime,lidar", "views": 1}
    one, two = (profile(tiny.bert(), tmp_path / name, texts, **options) for name in "ab")
    pd.testing.assert_frame_equal(one.table(), two.table(), check_exact=True)
    table = one.table().set_index("metric")
    for name in ("infonce", "infonce_bound", "dime"):
        assert set(table.loc[name, "n"]) == {256} and set(table.loc[name, "n_skipped"]) == {44}
        assert table.loc[name, "variant"].str.startswith("N=256").all()
        assert (table.loc[name, "stderr"] > 0).all(), "of one block too"
    assert set(table.loc["lidar", "n"]) == {300} and set(table.loc["lidar", "variant"]) == {"q=2"}
    other = profile(tiny.bert(), tmp_path / "c", texts, **options, seed=1)
    assert not np.allclose(other.metric("infonce"), one.metric("infonce"))
    bound = math.log(256) - one.metric("infonce")
    np.testing.assert_allclose(one.metric("infonce_bound"), bound, rtol=1e-6)


def test_view_samples_limits_who_gets_views(tmp_path: Path) -> None:
    run = profile(tiny.bert(), tmp_path / "a", views=3, view_samples=12, metrics="lidar")
    plan = run.folder.plan
    assert plan[plan["view"] > 0].groupby("view")["sample"].nunique().to_dict() == {1: 12, 2: 12, 3: 12}
    assert set(run.table()["variant"]) == {"q=4"} and set(run.table()["n"]) == {12}


def test_orders_of_entropy(tmp_path: Path, run) -> None:
    for layer in range(4):
        tokens = metrics.dataset_entropy(run.pooled(layer))
        assert run.metric("dataset_entropy", variant="alpha=1")[layer] == pytest.approx(tokens, rel=1e-6)
    first, second = (run.metric("prompt_entropy", variant=f"alpha={a}") for a in (1, 2))
    assert (second <= first + 1e-6).all() and not np.allclose(first, second)
    half = profile(tiny.llama(), tmp_path / "a", alpha=1.5, metrics="prompt_entropy").metric(
        "prompt_entropy", variant="alpha=1.5"
    )
    assert (half <= first + 1e-6).all() and (half >= second - 1e-6).all()


class Sinks(torch.nn.Module):
    """Adds a massive activation to the first token."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        out = hidden.clone()
        out[:, 0, 3] += 1e5
        return out


def test_sinks_are_left_out_and_counted(tmp_path: Path) -> None:
    def sinking() -> torch.nn.Module:
        model = tiny.gpt2()
        model.transformer.h[0].register_forward_hook(
            lambda _, __, out: Sinks()(out) if isinstance(out, torch.Tensor) else (Sinks()(out[0]), *out[1:])
        )
        return model

    texts = [text for text in TEXTS if len(text.split()) > 2]
    kept = profile(sinking(), tmp_path / "a", texts, metrics="prompt_entropy,dataset_entropy")
    left = profile(sinking(), tmp_path / "b", texts, metrics="prompt_entropy,dataset_entropy", exclude_sinks=True)
    assert list(left.metric("sinks").round(6)) == [0, 1, 1, 1]
    assert "sinks" not in set(kept.table()["metric"])
    assert np.abs(kept.pooled(2)).max() > 1e3 > np.abs(left.pooled(2)).max()
    assert left.metric("dataset_entropy")[2] > kept.metric("dataset_entropy")[2] + 0.1


def test_half_precision_in_the_store_keeps_the_table(tmp_path: Path, run) -> None:
    half = profile(tiny.llama(), tmp_path / "a", pooling="mean", store_dtype="float16", metrics="cka,dataset_entropy")
    np.testing.assert_allclose(half.metric("cka", pooling="mean"), run.metric("cka", pooling="mean"), atol=1e-3)
    np.testing.assert_allclose(half.metric("dataset_entropy"), run.metric("dataset_entropy"), rtol=1e-3)
    shard = half.path / "shards" / "00000.safetensors"
    whole = (
        profile(tiny.llama(), tmp_path / "b", pooling="mean", metrics="cka,dataset_entropy").path
        / "shards"
        / "00000.safetensors"
    )
    assert shard.stat().st_size < 0.65 * whole.stat().st_size
    np.testing.assert_allclose(half.pooled(2), run.pooled(2), rtol=2e-3, atol=2e-3)


def test_only_what_is_asked_for_is_kept(tmp_path: Path) -> None:
    run = profile(tiny.llama(), tmp_path / "a", metrics="dataset_entropy")
    assert set(run.table()["metric"]) == {"dataset_entropy"}
    with run.folder.shard(0) as file:
        assert set(file.keys()) == {"raw.mean", "normed.mean", "broken"}


def test_metrics_that_cannot_be_had_are_told(tmp_path: Path, capfd) -> None:
    with pytest.raises(LayerscopeError) as error:
        profile(tiny.bert(), tmp_path / "a", metrics="linear_probe,perplexity")
    assert str(error.value) == (
        "nothing to measure: perplexity is not measured: BertForMaskedLM does not predict the next token; "
        "linear_probe is not measured: the data have no labels (name their column with `label_column`)"
    )
    profile(tiny.bert(), tmp_path / "b", metrics="curvature,infonce", progress=True)
    told = " ".join(capfd.readouterr().err.split())
    assert "infonce is not measured: it compares views of a sample (give --views 1 or more)" in told


def test_labels_too_few_to_be_probed_are_told_before_the_pass(tmp_path: Path) -> None:
    with pytest.raises(LayerscopeError, match="it needs two classes of five distinct samples"):
        profile(tiny.bert(), tmp_path / "a", (TEXTS, list(range(40))), metrics="linear_probe")
    assert not (tmp_path / "a").exists()


def test_an_order_asked_for_twice_is_one(tmp_path: Path) -> None:
    run = profile(tiny.bert(), tmp_path / "a", alpha=[2, 1, 2], metrics="dataset_entropy")
    assert list(run.table()["variant"]) == ["alpha=2", "alpha=1"] * 4


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"metrics": []}, "metrics is empty: give names, default, seven or all"),
        ({"batch_size": "8"}, "batch_size is '8': give a whole number of at least 1"),
        ({"samples": 2.5}, "samples is 2.5: give a whole number of at least 2, or all"),
        ({"pooling": ("mean", "last")}, "pooling is ('mean', 'last'): give auto, or names with commas"),
    ],
)
def test_options_of_a_wrong_kind_are_one_line(tmp_path: Path, options: dict[str, Any], line: str) -> None:
    with pytest.raises(LayerscopeError) as error:
        profile(tiny.bert(), tmp_path / "a", **options)
    assert str(error.value) == line


def test_a_run_that_has_not_got_to_its_tables(run, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(run.path, tmp_path / "run")
    for file in (tmp_path / "run" / "tables").iterdir():
        file.unlink()
    (tmp_path / "run" / "shards" / "00000.safetensors").unlink()
    early = layerscope.open_run(tmp_path / "run")
    with pytest.raises(LayerscopeError, match="has no table yet: run the same command to go on"):
        early.table()
    with pytest.raises(LayerscopeError, match="shard 0 of .* cannot be read .*: run the same command"):
        early.pooled(0)


def test_data_in_memory_have_a_folder_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, options = tiny.Plain(), {"progress": False, "metrics": "rankme"}
    one, other = (layerscope.profile(model, tiny.rows(12, seed), **options) for seed in (0, 1))
    assert one.path != other.path and one.path.name.startswith("Plain-tensor-")
    again = layerscope.profile(model, tiny.rows(12), **options)
    assert again.path == one.path and [event["event"] for event in again.folder.events()].count("resumed") == 1
    labels = [i % 2 for i in range(12)]
    given = layerscope.profile(model, tiny.rows(12), labels=labels, **options)
    assert given.path != one.path and given.samples()["label"].tolist() == labels
    frame = pd.DataFrame({"text": tiny.texts(3)})
    assert open_corpus(frame, labels=["a", "b", "a"]).labels == ("a", "b", "a")
    for data in ("some.csv", Path("some.csv")):
        with pytest.raises(LayerscopeError, match="`labels` goes with samples in memory"):
            layerscope.profile(model, data, labels=labels, **options)
    with pytest.raises(LayerscopeError, match="does not hold real numbers"):
        layerscope.profile(model, np.ones((4, 6), dtype=np.complex64), **options)
    with pytest.raises(LayerscopeError, match="complex values have no metric"):
        layerscope.metrics.rankme(torch.ones(4, 4, dtype=torch.complex64))
