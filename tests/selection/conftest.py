import pandas as pd
import pytest
import tiny

import layerscope


def texts_of_two_topics(n=60):
    """Texts of 10 words: three of a topic's own among words of both."""
    labels = ["a", "b"] * (n // 2)
    own = {"a": "w1 w2 w3", "b": "w11 w12 w13"}
    rest = [text.split() for text in tiny.texts(n, longest=7)]
    return [
        f"{own[label]} {' '.join((words * 7)[:7])} w{20 + i}"
        for i, (label, words) in enumerate(zip(labels, rest, strict=True))
    ], labels


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    texts, labels = texts_of_two_topics()
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
