"""What `layerscope train` answers to wrong input: one line each, and nothing is lost."""

import json
from pathlib import Path

import learning
import pytest
import tiny
import transformers as hf
from tiny import one_thread
from typed import cli, flagged

import layerscope
from layerscope.core.folder_lock import locked
from layerscope.inputs import open_corpus
from layerscope.training.data import prepare

__all__ = ["cli", "one_thread"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    learning.encoder(folder / "bert")
    learning.decoder(folder / "gpt2")
    learning.vision(folder / "vit")
    tiny.saved(tiny.classifier(2), folder / "classifier", special=True)
    learning.table(folder / "texts.csv")
    learning.novel(folder / "novel.txt")
    learning.photos(folder / "photos", 8)
    tiny.saved(tiny.classifier(3), folder / "three", special=True)
    hf.SwinConfig(
        image_size=16, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=2
    ).to_json_file(folder / "swin.json")
    hf.GPT2Config().to_json_file(folder / "bare.json")
    (folder / "numbers.csv").write_text("text,label\nw1 w2,0\nw3,1\nw4,7\n")
    (folder / "line.txt").write_text("w1 w2 w3")
    (folder / "other.csv").write_text("text,label\nw1 w2,low\nw3,new\n")
    (folder / "alike.csv").write_text("text,label\nw1 w2,low\nw3,low\n")
    (folder / "empty.csv").write_text("text,label\n")
    (folder / "plain.csv").write_text("text\nw1 w2\nw3\n")
    (folder / "broken.json").write_text("{}")
    return folder


CASES = [
    (["bert", "--train", "texts.csv", "--task", "clasification"],
     "task 'clasification' does not exist, did you mean classification? (choose auto, classification, "
     "token-classification, causal-lm, masked-lm, image-classification, audio-classification, sentence-similarity)"),
    (["bert", "--train", "texts.csv", "--preset", "tracing-glu"],
     "preset 'tracing-glu' does not exist, did you mean tracing-glue? "
     "(choose tracing-glue, tracing-gpt2, tracing-deit, layerskip)"),
    (["bert", "--train", "texts.csv", "--objective", "alined"],
     "objective 'alined' does not exist, did you mean aligned? (choose standard, aligned, cosine, cka, classifiers)"),
    (["bert", "--train", "texts.csv", "--schedule", "even"],
     "schedule 'even' does not exist: choose alternate, always, rotating, gradual"),
    (["bert", "--train", "texts.csv", "--rotation", "2"],
     "the schedule 'always' has no rotation: leave it out, or try --schedule rotating"),
    (["bert", "--train", "texts.csv", "--schedule", "rotating", "--rotation", "0"],
     "rotation is 0: give a whole number of at least 1"),
    (["bert", "--train", "texts.csv", "--layer-dropout", "1"],
     "layer_dropout is 1: give a number of at least 0 and below 1"),
    (["bert", "--train", "texts.csv", "--head", "cls"], "head 'cls' does not exist: choose auto, mean, own, new"),
    (["bert", "--train", "texts.csv", "--weights", "liner"],
     "weights is 'liner': give numbers of at least 0, or linear, or uniform, or layerskip"),
    (["bert", "--train", "texts.csv", "--layers", "1,9"],
     "exits [1, 9]: give increasing layers from 1 to 3, at least one"),
    (["bert", "--train", "texts.csv", "--epochs", "many"], "epochs is 'many': give a number above 0"),
    (["bert", "--train", "texts.csv", "--batch-size", "0"], "batch_size is 0: give a whole number of at least 1"),
    (["bert", "--train", "texts.csv", "--beta", "-1"], "beta is -1: give a number of at least 0"),
    (["bert", "--train", "texts.csv", "--as-printed"],
     "--as-printed needs a preset, whose printed values it takes: give --preset"),
    (["bert"], "layerscope train needs --train: layerscope train --help shows an example"),
    (["vit", "--train", "texts.csv", "--from-config"],
     "vit (vit) has no head for classification in transformers: choose another --task, or model"),
    (["bert", "--train", "photos"],
     "bert (bert) has no head for image-classification in transformers: choose another --task, or model"),
    (["bert", "--train", "photos", "--task", "classification"],
     "photos holds image samples, and the task classification reads text"),
    (["vit", "--train", "photos", "--from-config", "--head", "mean"],
     "head 'mean' is for classification of texts, and vit (vit) has none for the task image-classification: "
     "try --head own"),
    (["bert", "--train", "novel.txt", "--task", "causal-lm"],
     "bert (bert) sees both sides of a token: try --task masked-lm"),
    (["bert", "--train", "novel.txt"],
     "the tokenizer of bert has no mask token, which masked-lm needs: name another with --processor"),
    (["classifier", "--train", "texts.csv"],
     "label 'high' is not one of the 2 classes of classifier (LABEL_0, LABEL_1): rename it, or train a fresh head with "
     "--head new"),
    (["bert", "--train", "plain.csv"],
     "plain has no labels, which classification learns from: name their column with --label-column, or learn the text "
     "itself with --task causal-lm or --task masked-lm"),
    (["bert", "--train", "novel.txt", "--task", "classification"],
     "novel has no labels, which classification learns from: name their column with --label-column, or learn the text "
     "itself with --task causal-lm or --task masked-lm"),
    (["bert", "--train", "texts.csv", "--eval", "other.csv"],
     "label 'new' of other is not in the training data texts (high, low): a model cannot learn it, leave such samples "
     "out"),
    (["bert", "--train", "alike.csv", "--eval", "alike.csv"],
     "every label of alike is 'low': give at least two classes"),
    (["bert", "--train", "texts.csv", "--eval", "empty.csv"],
     "{place}/empty.csv has a header but no rows: give at least one text"),
    (["broken.json", "--train", "photos", "--from-config"],
     "'{place}/broken.json' has no model_type in its config: is this a transformers model?"),
    (["vi", "--train", "photos", "--from-config"],
     "'{place}/vi' does not exist, did you mean vit?: with --from-config give a folder with config.json, or a JSON "
     "file"),
    (["vit/config.json", "--train", "photos", "--from-config", "--baseline-depths", "3"],
     "--baseline-depths 3: this model has 3 layers, give some of 1..2"),
    (["bert", "--train", "texts.csv", "--baseline-depths", "0"],
     "baseline_depths is 0: give whole numbers of at least 1, such as 3,6"),
    (["bert", "--train", "texts.csv", "--device", "tpu"],
     "device 'tpu' does not exist, did you mean cpu? (choose auto, cpu, cuda)"),
    (["bert", "--train", "texts.csv", "--layers", "1,last"],
     "layers is 'last': give whole numbers, such as 3,6 or 3-6"),
    (["bert", "--train", "texts.csv", "--seed", "5000000000"],
     "seed is 5000000000: give a whole number from 0 to 4294967295"),
    (["bert", "--train", "texts.csv", "--distillation", "0.5"],
     "the objective 'aligned' has no distillation: leave it out, or try --objective classifiers"),
    (["bert", "--train", "texts.csv", "--augment"],
     "augment crops and turns images, and classification reads none: leave it out"),
    (["bert", "--train", "texts.csv", "--max-length", "1"],
     "--max-length 1 has no room beside 2 special tokens: give 3 or more"),
    (["gpt2", "--train", "line.txt"], "line has one sample, and none can be held out: give --eval"),
    (["swin.json", "--train", "photos", "--from-config"],
     "the layers of this model differ in width, stage-1 (1 layer of 8), stage-2 (1 layer of 16): one head reads layers "
     "of one width"),
    (["swin.json", "--train", "photos", "--from-config", "--part", "stage-2"],
     "layers differ in width: swin.encoder.layers.0.blocks.0 turns 8 features into 8, swin.encoder.layers.1.blocks.0 "
     "gives 16; one head reads layers of one width"),
    (["bare.json", "--train", "novel.txt", "--from-config"],
     "'{place}' has no tokenizer that can be loaded: save one with the model, or name one with --processor"),
    (["three", "--train", "numbers.csv"],
     "label '7' is not one of the 3 classes of three (LABEL_0, LABEL_1, LABEL_2): rename it, or train a fresh head "
     "with --head new"),
]  # fmt: skip
PATHS = {"bert", "gpt2", "vit", "vi", "classifier", "three", "photos", "vit/config.json"}


@pytest.mark.parametrize(("words", "line"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_wrong_input_is_told_in_one_line(
    cli, place: Path, tmp_path: Path, words: list[str], line: str
):
    files = {word: place / word for word in words if word in PATHS or (place / word).is_file()}
    printed = cli(
        "train",
        "--device",
        "cpu",
        "--out",
        tmp_path / "out",
        *[files.get(word, word) for word in words],
    )
    assert (printed.status, printed.line) == (2, flagged(line.format(place=place), *words))
    assert not (tmp_path / "out").exists()


def test_another_training_in_the_same_folder_loses_nothing(cli, place: Path, tmp_path: Path):
    common = [
        "train",
        place / "bert",
        "--train",
        place / "texts.csv",
        "--eval",
        place / "texts.csv",
        "--out",
        tmp_path / "out",
        "--max-steps",
        "2",
    ]
    assert cli(*common).status == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    printed = cli(*common, "--objective", "standard", "--seed", "1")
    assert (printed.status, printed.line) == (
        2,
        f"out '{tmp_path}/out' holds another training (objective aligned there, standard here; seed 0 there, 1 here):"
        " name another folder, or give the same settings to resume it",
    )
    assert before == {
        path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    again = cli(*common)
    assert again.status == 0
    assert f"{tmp_path}/out is finished: nothing is left to train" in again.err
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == before[
        tmp_path / "out" / "model.safetensors"
    ]


def test_a_second_job_in_the_folder_of_a_training_is_refused(cli, place: Path, tmp_path: Path):
    common = [
        "train",
        place / "bert",
        "--train",
        place / "texts.csv",
        "--max-steps",
        "1",
        "--out",
        tmp_path / "out",
    ]
    assert cli(*common).status == 0
    with locked(tmp_path / "out"):
        second = cli(*common)
    assert second.status == 2
    assert second.line.startswith(
        f"another process is writing to '{tmp_path}/out': wait for it, or choose another"
    )
    assert cli(*common).status == 0


def test_folders_that_are_no_trainings_are_left_alone(cli, place: Path, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    common = ["train", place / "bert", "--train", place / "texts.csv"]
    assert cli(*common, "--out", tmp_path / "mine").line == (
        f"--out {tmp_path}/mine exists and holds no training: name a new folder"
    )
    assert cli(*common, "--out", tmp_path / "file").line == (
        f"out '{tmp_path}/file' cannot be made ({tmp_path}/file is a file): name a folder"
    )
    with pytest.raises(layerscope.LayerscopeError, match="cannot be made"):
        layerscope.train(
            place / "bert", place / "texts.csv", out=tmp_path / "file" / "out", progress=False
        )


def test_a_loss_that_is_no_number_stops_and_keeps_what_was_good(cli, place: Path, tmp_path: Path):
    printed = cli(
        "train",
        place / "bert",
        "--train",
        place / "texts.csv",
        "--out",
        tmp_path / "out",
        "--max-steps",
        "6",
        "--learning-rate",
        "1e30",
        "--eval-every",
        "1",
        "--scheduler",
        "constant",
    )
    assert printed.status == 2
    assert "NaN or infin" in printed.line
    assert not (tmp_path / "out" / "model.safetensors").exists()
    assert json.loads((tmp_path / "out" / "training.json").read_text())["finished"] is False


def test_where_nothing_can_be_reported_to(cli, place: Path, tmp_path: Path):
    common = [
        "train",
        place / "bert",
        "--train",
        place / "texts.csv",
        "--out",
        tmp_path / "out",
        "--report-to",
    ]
    wrong, missing = cli(*common, "tensorbord"), cli(*common, "neptune")
    assert (wrong.status, missing.status) == (2, 2)
    assert wrong.line.startswith(
        "--report-to 'tensorbord' does not exist, did you mean tensorboard? (choose none, "
    )
    assert missing.line == "--report-to 'neptune' is not installed: install it, or choose another"
    assert not (tmp_path / "out").exists()


def test_a_start_that_came_to_nothing_does_not_hold_the_folder(cli, place: Path, tmp_path: Path):
    common = [
        "train",
        place / "bert",
        "--train",
        place / "texts.csv",
        "--max-steps",
        "1",
        "--out",
        tmp_path / "out",
    ]
    assert cli(*common, "--eval-samples", "4").status == 0
    about = (tmp_path / "out" / "training.json").read_text()
    for killed in (
        tmp_path / "killed",
        tmp_path / "killed" / "baselines" / "depth-1",
    ):  # before the first evaluation
        killed.mkdir(parents=True)
        (killed / "training.json").write_text(about)
    (tmp_path / "killed" / ".training.json.part").write_text("{")  # and in the middle of a word
    assert cli(*common[:-1], tmp_path / "killed", "--seed", "1").status == 0
    assert json.loads((tmp_path / "killed" / "training.json").read_text())["settings"]["seed"] == 1


def test_a_rare_class_may_be_held_out_whole(place: Path):
    corpora = (open_corpus(place / "numbers.csv") for _ in range(8))
    for seed, corpus in enumerate(corpora):
        assert prepare(corpus, None, "classification", seed)[2] == ("0", "1", "7")


def test_python_names_a_setting_that_does_not_exist(place: Path, tmp_path: Path):
    with pytest.raises(
        layerscope.LayerscopeError, match="train has no option 'obective', did you mean objective"
    ):
        layerscope.train(
            place / "bert", place / "texts.csv", out=tmp_path / "out", obective="aligned"
        )
