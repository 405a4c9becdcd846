import pandas as pd
import pytest
import tiny

import layerscope


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """60 texts of 11 words: three of a topic's own, seven of both, and one of the text alone."""
    topics = {"a": "w1 w2 w3", "b": "w11 w12 w13"}
    labels = ["a", "b"] * 30
    texts = []
    for i, text in enumerate(tiny.texts(60, longest=7)):
        words = (text.split() * 7)[:7]
        texts.append(f"{topics[labels[i]]} {' '.join(words)} w{20 + i}")
    file = tmp_path_factory.mktemp("data") / "topics.csv"
    pd.DataFrame({"text": texts, "label": labels}).to_csv(file, index=False)
    return file


@pytest.fixture(scope="session")
def labelled(llama, data, tmp_path_factory):
    return layerscope.profile(
        llama,
        str(data),
        out=tmp_path_factory.mktemp("runs") / "labelled",
    )


@pytest.fixture(scope="session")
def bare(llama, data, tmp_path_factory):
    """The same without labels."""
    place = tmp_path_factory.mktemp("bare")
    pd.read_csv(data)[["text"]].to_csv(place / "topics.csv", index=False)
    return layerscope.profile(llama, str(place / "topics.csv"), out=place / "run")
