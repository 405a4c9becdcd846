import logging

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from typed import refused

from layerscope.inputs import Window, augment, open_corpus, pack, windows

WORDS = [f"w{i}" for i in range(100)]


def word_tokenizer(template):
    vocabulary = {
        word: i
        for i, word in enumerate(["[CLS]", "[SEP]", "[UNK]", "a", "the", *WORDS])
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", model_max_length=8
    )


def running(tmp_path, text):
    path = tmp_path / "story.txt"
    path.write_text(text)
    return open_corpus(path)


@pytest.mark.parametrize(
    "template, before, after",
    [
        ("$A", [], []),
        ("[CLS] $A", [0], []),
        ("$A [SEP]", [], [1]),
        ("[CLS] $A [SEP]", [0], [1]),
    ],
)
def test_windows_have_one_length_and_the_tokenizers_own_ends(
    tmp_path, template, before, after
):
    tokenizer = word_tokenizer(template)
    text = "\n\n".join(" ".join(WORDS[i : i + 7]) for i in range(0, 91, 7))
    packed = pack(running(tmp_path, text), tokenizer, 10)
    body = 10 - len(before) - len(after)
    assert {len(window.ids) for window in packed.samples} == {10}
    assert len(packed) == 91 // body
    inner = [
        i
        for window in packed.samples
        for i in window.ids[len(before) : 10 - len(after)]
    ]
    assert inner == tokenizer(text, add_special_tokens=False)["input_ids"][: len(inner)]
    for window in packed.samples:
        assert window.text in " ".join(text.split())
        assert list(window.ids) == tokenizer(window.text)["input_ids"]
    rest = 91 - len(inner)
    assert any(note.startswith(f"the last {rest} token") for note in packed.notes) == (
        rest > 0
    )
    assert not packed.running
    assert packed.labels is None


def test_pieces_change_nothing_and_warn_of_nothing(
    tmp_path, monkeypatch, caplog, capsys
):
    tokenizer = word_tokenizer("[CLS] $A")
    corpus = running(tmp_path, "\n".join(" ".join(WORDS) for _ in range(20)))
    whole = pack(corpus, tokenizer, 16)
    monkeypatch.setattr(windows, "PIECE", 333)
    with caplog.at_level(logging.WARNING):
        pieces = pack(corpus, tokenizer, 16)
    assert list(pieces.samples) == list(whole.samples)
    assert pieces.fingerprint() == whole.fingerprint()
    assert "longer than" not in caplog.text + capsys.readouterr().err


def test_a_short_text_is_one_window(tmp_path):
    packed = pack(running(tmp_path, "w1 w2"), word_tokenizer("[CLS] $A"), 256)
    assert list(packed.samples) == [Window("w1 w2", (0, 6, 7))]


def test_what_cannot_be_packed(tmp_path):
    tokenizer = word_tokenizer("[CLS] $A [SEP]")
    corpus = running(tmp_path, "w1 w2 w3")
    message = "a window of 2 tokens has no room for text beside the tokenizer's 2 special tokens: give 3 or more"
    with refused(f"^{message}$"):
        pack(corpus, tokenizer, 2)
    with refused("^digits holds image samples: only text is packed into windows$"):
        pack(open_corpus("digits"), tokenizer, 8)
    with refused("^story is packed into windows already: pack the text it came from$"):
        pack(pack(corpus, tokenizer, 8), tokenizer, 8)


def test_a_window_is_augmented_as_text():
    view = augment(Window("hello world", (1, 2)), "text", seed=0, sample_id=0, view=0)
    assert isinstance(view, str)
    assert view != "hello world"
