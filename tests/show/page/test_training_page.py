"""Histories of trainings on the page, in a real browser and in a terminal: the values, and what can be switched."""

import csv
import io
import math

import pandas as pd
import pytest
from rich.console import Console

from layerscope.core.errors import LayerscopeError
from layerscope.reports.verb import report
from layerscope.runs import COLUMNS, RunFolder, open_run
from layerscope.runs.folder import PLANNED
from layerscope.show.terminal import show

STEPS = (0, 50, 100)
PLOTS = "(file) => cards.find(c => c.figure.file === file).plots"
HOSTILE = "</script><script>window.hit = 1</script><b>%{y}</b>"


def at(metric, layer, step, value, **more):
    known = {
        "metric": metric,
        "part": "model",
        "layer": layer,
        "site": "head",
        "value": value,
        "step": step,
        "n": 40,
    }
    return {"variant": None, "pooling": None, "stderr": 0.01, "n_skipped": 0, **known, **more}


def score(metric, layer, step, depth):
    """Return a value that tells layer, step and depth apart."""
    return {"perplexity": 90.0}.get(metric, 0.5) + layer / 100 + step / 1000 + depth / 10_000


def history(path, depth, objective, language_model=False):
    """Write a history as a training does."""
    told = {
        "model": {
            "name": "tiny",
            "depth": depth,
            "width": 8,
            "parameters": 1000,
            "sites": ["head"],
            "lens": "pooled",
            "language_model": language_model,
            "part": "model",
            "class": "Tiny",
        },
        "data": {"name": "held out", "samples": 40},
        "pooling": [],
        "pair_pooling": [],
        "kind": "training",
        "options": {"objective": objective, "metrics": []},
    }
    main = "perplexity" if language_model else "layer_accuracy"
    rows = []
    for step in STEPS:
        for layer in range(1, depth + 1):
            rows += [
                at(name, layer, step, score(name, layer, step, depth))
                for name in (main, "cross_entropy", "nc1")
            ]
            rows.append(
                at(
                    "cosine_similarity",
                    layer,
                    step,
                    layer / depth - step / 1000,
                    variant="uncentered",
                    layer_b=depth,
                    site_b="head",
                )
            )
            rows.append(at("saturated", layer, step, layer / depth))
        rows += [
            at("saturation_layer", depth, step, 1.5),
            at(
                "effective_depth",
                depth,
                step,
                1.0 + step / 100,
                stderr=math.nan,
                variant="relative_to=last,epsilon=0.01",
            ),
        ]
        rows.append(
            at("effective_depth", depth, step, float(depth), variant="relative_to=all,epsilon=0.01")
        )
    folder = RunFolder.create(path, told, pd.DataFrame(columns=sorted(PLANNED)))
    folder.write_table("training", pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS))
    return open_run(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the histories of two objectives, one of them with what `train` measured of depth, and of a baseline."""
    place = tmp_path_factory.mktemp("histories")
    found = [
        history(place / name / "history", depth, name)
        for name, depth in (("aligned", 6), ("standard", 6))
    ]
    found.append(history(place / "shallow" / "history", 3, "standard"))
    depths = [
        {
            "name": name,
            "objective": "aligned",
            "depth": depth,
            "layer": layer,
            "metric": "accuracy",
            "value": layer / 10,
            "stderr": 0.01,
            "ms_per_sample": 0.5 * layer + depth / 100,
            "megabytes": 4 * layer,
        }
        for name, depth in (("aligned", 6), (HOSTILE, 3))
        for layer in range(1, depth + 1)
    ]
    separate = {
        "name": "separate",
        "depth": 2,
        "layer": 2,
        "value": 0.2,
    }  # where the curve it rivals runs
    pd.DataFrame([*depths, depths[1] | separate]).to_csv(found[0].path / "depths.csv", index=False)
    return found


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    return report(runs, tmp_path_factory.mktemp("page") / "all.html")


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (360, "dark")])
def test_opens_without_a_word_and_draws_everything(browser, page, width, scheme):
    with browser.open(page, width, scheme) as opened:
        assert opened.console == []
        assert opened.ask("document.documentElement.scrollWidth <= innerWidth"), (
            "the page is wider than the window"
        )
        assert opened.ask("window.hit") is None
        assert all(
            opened.ask(
                "cards.flatMap(c => c.plots).map(p => p.querySelectorAll('.main-svg').length)"
            )
        )
        names = [
            "Training",
            "Depth and the clock",
            "What your labels say",
            "Similarity of layers",
            "What the model's head reads",
        ]
        assert opened.texts("main section h2")[1:6] == names
        assert opened.texts("fieldset.runs bdi") == [
            "tiny, aligned",
            "tiny, standard (standard)",
            "tiny, standard (shallow)",
        ]


def test_maps_and_lines_are_the_values_by_step(browser, page, runs):
    with browser.open(page) as opened:
        for place, run in enumerate(runs):
            drawn = opened.ask(f"({PLOTS})('accuracy-by-step')[{place}].data[0]")
            wanted = [
                [100 * score("layer_accuracy", layer, step, run.depth) for step in STEPS]
                for layer in range(1, run.depth + 1)
            ]
            assert drawn["z"] == [pytest.approx(line) for line in wanted]
            named = opened.ask(f"({PLOTS})('accuracy-by-step')[{place}].layout.yaxis.ticktext")
            assert named == [str(layer) for layer in range(1, run.depth + 1)]
            assert drawn["zmin"] == opened.ask(f"({PLOTS})('accuracy-by-step')[0].data[0].zmin"), (
                "one scale for all"
            )
        lines = opened.ask(f"({PLOTS})('effective-depth-by-step')[0].data")
        lines = [trace for trace in lines if trace.get("name")]
        assert [line["x"] for line in lines] == [list(STEPS)] * 3
        assert lines[0]["y"] == [1.0, 1.5, 2.0]
        losses = [
            t
            for t in opened.ask(f"({PLOTS})('loss-of-the-last-layer-by-step')[0].data")
            if t.get("name")
        ]
        assert losses[2]["y"] == [score("cross_entropy", 3, step, 3) for step in STEPS]
        curve = opened.ask(f"({PLOTS})('layer-accuracy')[0].data")
        last = next(trace for trace in curve if trace.get("name") == "tiny, aligned")
        assert last["y"] == pytest.approx(
            [100 * score("layer_accuracy", k, 100, 6) for k in range(1, 7)]
        )


def test_depth_is_told_in_layers_and_can_be_in_percent(browser, page):
    ends = f"({PLOTS})('accuracy-by-layer')[0].data.filter(t => t.name).map(t => t.x.at(-1))"
    with browser.open(page) as opened:
        assert opened.ask(ends) == [6, 3, 2]
        opened.tab.check("input[name=axis][value=percent]")
        opened.drawn()
        assert opened.ask(ends) == [100, 100, 100]
        times = opened.ask(f"({PLOTS})('accuracy-by-time')[0].data.filter(t => t.name)")
        assert times[0]["x"] == pytest.approx([0.5 * layer + 0.06 for layer in range(1, 7)])
        assert times[0]["y"] == pytest.approx([10.0 * layer for layer in range(1, 7)])
        drawn = opened.ask(f"({PLOTS})('accuracy-by-layer')[0].data.filter(t => t.name).at(-1)")
        assert (
            drawn["y"] == [20.0]
            and drawn["mode"] == "markers"
            and drawn["marker"]["symbol"] == "diamond-open"
        )
        assert drawn["marker"]["size"] > 10 and drawn["error_y"]["array"] == [pytest.approx(1.0)]
        rows = opened.ask(
            "[...document.querySelectorAll('#depths tbody tr')].map(r => r.textContent)"
        )
        assert (
            len(rows) == 10
            and rows[0]
            == "tiny, aligned" + "aligned" + "1" + "6" + "10.0 ±1.0 %" + "0.560" + "4.00"
        )
        assert HOSTILE in opened.text("#depths")


def test_a_run_can_be_hidden_and_its_values_downloaded(browser, page, tmp_path):
    with browser.open(page) as opened:
        opened.tab.uncheck("input[data-run='1']")
        opened.drawn()
        card = "figure.card:has(h3:text-is('Accuracy by step')) [data-csv]"
        with opened.save(card, tmp_path).open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert {row["run"] for row in rows} == {"tiny, aligned", "tiny, standard (shallow)"}
        assert len(rows) == len(STEPS) * (6 + 3)
        found = next(row for row in rows if (row["layer"], row["step"]) == ("2", "50"))
        assert float(found["value"]) == pytest.approx(100 * score("layer_accuracy", 2, 50, 6))
        with opened.save(
            "figure.card:has(h3:text-is('Accuracy by time')) [data-csv]", tmp_path
        ).open() as file:
            assert {row["series"] for row in csv.DictReader(file)} == {
                "aligned",
                HOSTILE,
                "separate",
            }


def test_perplexity_takes_the_place_of_accuracy_and_a_logarithmic_scale(browser, tmp_path):
    run = history(tmp_path / "history", 3, "aligned", language_model=True)
    with browser.open(report(run)) as opened:
        assert opened.console == []
        drawn = opened.ask(f"({PLOTS})('perplexity-by-step')[0].data[0]")
        assert drawn["z"][2][1] == pytest.approx(math.log10(score("perplexity", 3, 50, 3)))
        assert "Accuracy by step" not in opened.text("main")


def told(run, width=100):
    stream = io.StringIO()
    show(run.document(), Console(file=stream, width=width))
    return stream.getvalue()


def test_a_terminal_shows_the_last_step(runs):
    text = told(runs[0])
    lines = {
        line.split()[0]: line.split()
        for line in text.splitlines()
        if line.strip() and line.split()[0].isdigit()
    }
    assert lines["2"] == [
        "2",
        "62.1",
        "±1.0",
        "%",
        "0.233",
        "±0.010",
        "33.3",
        "±1.0",
        "%",
        "0.621",
        "±0.010",
    ]
    assert len(lines) == 6
    assert "Effective depth 2 of 6; predictions settle at layer 1.50 on average" in text
    assert "step 100 · 40 samples · aligned" in text
    assert max(map(len, told(runs[0], 70).partition("next: ")[0].splitlines())) <= 70


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name,layer\na,1\n", "has no column 'objective'"),
        (
            "name,objective,metric,depth,layer,value,stderr,ms_per_sample,megabytes\na,b,c,1,1,much,0,0,0\n",
            "much",
        ),
        ("", "cannot be read"),
    ],
)
def test_a_damaged_file_of_depths_is_told(tmp_path, text, line):
    run = history(tmp_path / "history", 2, "aligned")
    (run.path / "depths.csv").write_text(text)
    with pytest.raises(LayerscopeError, match=line):
        report(run, tmp_path / "x.html")
