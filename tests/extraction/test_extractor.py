"""`Extractor` in batches of other libraries: the numbers of `extract`, in other processes too."""

import pickle

import numpy as np
import pytest
import tiny
from safetensors.numpy import load_file
from typed import refused

import layerscope
from layerscope.extraction import batches

TEXTS = tiny.texts(40)


@pytest.fixture(scope="module")
def whole(bert, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "states"
    layerscope.extract(bert, TEXTS, [1, 3], out=out)
    return load_file(out / "chunks" / "000000.safetensors")["states"]


def test_a_batch_gets_an_array_for_each_layer(bert, whole):
    extractor = layerscope.Extractor(bert, "1,-1")
    batch = {"text": TEXTS, "id": list(range(40))}
    found = extractor(batch)
    assert sorted(found) == ["id", "layer_1", "layer_3", "text"] and sorted(batch) == [
        "id",
        "text",
    ]
    np.testing.assert_array_equal(np.stack([found["layer_1"], found["layer_3"]]), whole)
    some = extractor({"text": np.array(TEXTS[7:9], dtype=object)})
    np.testing.assert_allclose(some["layer_3"], whole[1, 7:9], atol=1e-5)
    both = layerscope.Extractor(bert, 2, pooling="mean,cls", column="body")(
        {"body": TEXTS[:2]}
    )
    assert {"layer_2.mean", "layer_2.cls"} < set(both)
    with refused("the batch has no column 'text': it has body"):
        extractor({"body": TEXTS})


def test_it_travels_light_and_loads_once(bert, monkeypatch):
    extractor = layerscope.Extractor(bert, 3, device="cpu")
    extractor({"text": TEXTS[:3]})
    sent = pickle.dumps(extractor)
    assert len(sent) < 5000
    monkeypatch.setattr(batches, "layered", None)  # it is not loaded again
    arrived = pickle.loads(sent)
    assert np.array_equal(
        arrived({"text": TEXTS[:3]})["layer_3"],
        extractor({"text": TEXTS[:3]})["layer_3"],
    )


def test_a_sample_without_a_token_is_nan():
    found = layerscope.Extractor(
        tiny.gpt2(), 1, processor=tiny.tokenizer(special=False)
    )({"text": ["w1", "", "w2", None]})
    assert np.isnan(found["layer_1"]).all(1).tolist() == [False, True, False, True]


def test_batches_without_a_text_have_the_same_columns(bert):
    extractor = layerscope.Extractor(bert, 3)
    extractor({"text": ["w1"]})  # with which the model is loaded
    found = extractor({"text": [None, " "]})
    assert found["layer_3"].shape == (2, 32) and np.isnan(found["layer_3"]).all()
    with refused("column 'text' holds 3 among its texts: give texts alone"):
        extractor({"text": ["w1", 3]})


def test_ray_with_two_workers(bert, whole):
    import ray  # slow to import

    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error"
    )
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        rows = ray.data.from_items(
            [{"text": text, "id": i} for i, text in enumerate(TEXTS)],
            override_num_blocks=4,
        )
        found = rows.map_batches(
            layerscope.Extractor,
            fn_constructor_kwargs={"model": bert, "layers": [1, 3]},
            batch_size=10,
            compute=ray.data.ActorPoolStrategy(size=2),
        ).to_pandas()
    finally:
        ray.shutdown()
    found = found.sort_values("id")
    states = np.stack([np.stack(found[f"layer_{layer}"]) for layer in (1, 3)])
    np.testing.assert_allclose(states, whole, atol=1e-5)
