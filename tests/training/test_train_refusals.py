"""What `layerscope train` answers to wrong input: one line each, and nothing is lost."""

import shutil

import learning
import pytest
import tiny
from learning import train
from typed import flagged, refused

import layerscope
from layerscope.core.files import read_json
from layerscope.core.folder_lock import locked
from layerscope.early_exit import ExitModel
from layerscope.early_exit.validation import read_validation
from layerscope.inputs import open_corpus
from layerscope.training.data import prepare

ONE = {"max_steps": 1, "device": "cpu"}
FILES = {
    "numbers.csv": "text,label\nw1 w2,0\nw3,1\nw4,7\n",
    "line.txt": "w1 w2 w3",
    "other.csv": "text,label\nw1 w2,low\nw3,new\n",
    "alike.csv": "text,label\nw1 w2,low\nw3,low\n",
    "plain.csv": "text\nw1 w2\nw3\n",
    "broken.json": "{}",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    learning.encoder(folder / "bert")
    learning.decoder(folder / "gpt2")
    learning.vision(folder / "vit")
    learning.table(folder / "texts.csv")
    learning.novel(folder / "novel.txt")
    learning.photos(folder / "photos", 8)
    tiny.saved(tiny.classifier(2), folder / "of2")
    tiny.gpt2().config.to_json_file(folder / "bare.json")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


NO_LABELS = ("has no labels, which classification learns from: name their column with --label-column, or learn the "
             "text itself with --task causal-lm")  # fmt: skip
CASES = {
    "bert texts.csv --layers 1,9": "exits [1, 9]: give increasing layers from 1 to 3, at least one",
    "bert texts.csv --objective cka --distillation 0.5":
        "the objective 'cka' has no distillation: leave it out, or try --objective aligned",
    "bert texts.csv --augment": "--augment crops and turns images, and classification reads none: leave it out",
    "bert texts.csv --dims 8": "--dims are those of sentence embeddings, and classification makes none: leave it out",
    "bert texts.csv --max-length 1":
        "special tokens take 2 of at most 1 tokens and leave no room for text: raise --max-length",
    "vit texts.csv --from-config":
        "vit (vit) has no head for classification in transformers: choose another --task, or model",
    "bert photos --task classification": "photos holds image samples, and the task classification reads text",
    "vit photos --from-config --head mean":
        "head 'mean' is for classification of texts, and vit (vit) has none for the task image-classification: "
        "try --head own",
    "bert novel.txt": "bert (bert) sees both sides of a token and cannot learn to predict the next one",
    "of2 texts.csv": "label 'high' is not one of the 2 classes of of2 (LABEL_0, LABEL_1): rename it, or train a fresh "
                     "head with --head new",
    "bert plain.csv": f"plain {NO_LABELS}",
    "bert texts.csv --eval other.csv":
        "label 'new' of other is not in the training data texts (high, low): a model cannot learn it, leave such "
        "samples out",
    "bert alike.csv --eval alike.csv": "every label of alike is 'low': give at least two classes",
    "gpt2 line.txt": "line has one sample, and none can be held out: give --eval",
    "broken.json photos --from-config":
        "'{place}/broken.json' has no model_type in its config: is this a transformers model?",
    "vi photos --from-config": "'{place}/vi' holds no config.json, did you mean vit?: with --from-config give a folder "
                               "with one, or a JSON file",
    "bare.json novel.txt --from-config":
        "'{place}' has no tokenizer that can be loaded (Couldn't instantiate the backend tokenizer from one of:): "
        "save one with the model, or name one with --processor",
}  # fmt: skip


@pytest.mark.parametrize("words, line", CASES.items(), ids=CASES)
def test_wrong_input_is_told_in_one_line(cli, place, tmp_path, words, line):
    printed = train(cli, place, words, "--out", tmp_path / "out")
    wanted = flagged(line.format(place=place), "--train", *words.split())
    assert (printed.status, printed.line) == (2, wanted)
    assert not (tmp_path / "out").exists()


def contents(out):
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_a_finished_training_is_left_as_it_is(cli, place, tmp_path):
    out = tmp_path / "out"
    words = "bert texts.csv --eval texts.csv --max-steps 2"
    assert train(cli, place, words, "--out", out).status == 0
    before = contents(out)
    other = train(cli, place, f"{words} --objective standard --seed 1", "--out", out)
    assert other.line == (
        f"out '{out}' holds another training (objective aligned there, standard here; seed 0 there, 1 here):"
        " name another folder, or give the same settings to resume it"
    )
    with locked(out):
        second = train(cli, place, words, "--out", out)
    line = f"another process is writing to '{out}': wait for it, or choose"
    assert second.line.startswith(line)
    assert before.items() <= contents(out).items()
    again = train(cli, place, words, "--out", out)
    assert again.status == 0
    assert f"{out} is finished: nothing is left to train" in again.err
    weights = out / "model.safetensors"
    assert weights.read_bytes() == before[weights]


def test_a_loss_that_is_no_number_stops_and_keeps_what_was_good(cli, place, tmp_path):
    words, out = "bert texts.csv --max-steps 6 --eval-every 1", tmp_path / "out"
    how = ["--learning-rate", "1e30", "--scheduler", "constant"]
    printed = train(cli, place, words, "--out", out, *how)
    assert printed.status == 2 and "NaN or infin" in printed.line
    assert not (out / "model.safetensors").exists()
    assert read_json(out / "training.json")["finished"] is False


def test_a_start_that_came_to_nothing_does_not_hold_the_folder(cli, place, tmp_path):
    words = "bert texts.csv --max-steps 1"
    out, killed = tmp_path / "out", tmp_path / "killed"
    whole = train(cli, place, f"{words} --eval-samples 4", "--out", out)
    assert whole.status == 0
    killed.mkdir()  # before the first evaluation
    shutil.copy(out / "training.json", killed)
    (killed / ".training.json.part").write_text("{")  # and in the middle of a word
    assert train(cli, place, f"{words} --seed 1", "--out", killed).status == 0
    assert read_json(killed / "training.json")["settings"]["seed"] == 1


def test_a_rare_class_may_be_held_out_whole(place):
    for seed in range(8):
        corpus = open_corpus(place / "numbers.csv")
        assert prepare(corpus, None, "classification", seed)[2] == ("0", "1", "7")


def test_padding_that_changes_states_is_refused(tmp_path):
    sounds = learning.sounds(tmp_path / "sounds", 6)
    files = tiny.wav2vec2(tmp_path / "speech"), sounds
    line = "padding changes this model's states: give batches of one length, as with `batch_size=1`"
    with refused(line):
        layerscope.train(*files, out=tmp_path / "padded", batch_size=4, **ONE)
    out = layerscope.train(*files, out=tmp_path / "out", batch_size=1, **ONE)
    read = read_validation(ExitModel(out), sounds)
    assert not read.together
    note = "padding changes this model's states: samples of different lengths are run one at a time"
    assert note in read.notes
