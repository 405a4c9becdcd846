"""Tasks of lm-evaluation-harness that cannot be opened or scored: one line each."""

import sys
from pathlib import Path

import lm_eval
import pytest
import tiny
import torch
from evaluation.test_lm_tasks import CHOICES, WORD, Write, documents, gpt2, write
from lm_eval.tasks import TaskManager
from tiny import one_thread
from typed import cli

import layerscope
import layerscope.evaluation.lm_tasks as lm_tasks
from layerscope.core.errors import LayerscopeError
from layerscope.evaluation import LayerLM
from layerscope.evaluation.lm_tasks import open_lm_tasks

__all__ = ["cli", "gpt2", "one_thread", "write"]


def test_what_cannot_be_opened(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # to read all of the harness's files takes long
    own = Path(lm_eval.__file__).parent / "tasks" / "arc"
    monkeypatch.setattr(
        lm_tasks, "_manager", lambda _: TaskManager(include_defaults=False, include_path=own)
    )
    broken, asks = tmp_path / "broken.yaml", write("asks", CHOICES)
    broken.write_text("a: [b")
    (tmp_path / "group.yaml").write_text("group: both\ntask: [asks, writes]")
    generates = write(
        "writes", {"output_type": "generate_until", "doc_to_text": "{{text}}", "doc_to_target": "x"}
    )
    Path(write("nodata", CHOICES)).with_suffix(".json").unlink()
    wrong = {
        "arc_easi": "lm task 'arc_easi' does not exist, did you mean arc_easy?",
        "arc_easy": "lm task 'arc_easy' cannot be loaded: its data are not cached and the hub cannot be reached",
        str(tmp_path / "missing.yaml"): "missing.yaml' does not exist",
        str(broken): "broken.yaml' cannot be loaded: ParserError",
        str(
            tmp_path / "group.yaml"
        ): "group.yaml' is a group, which the harness does not read from a file",
        str(tmp_path / "nodata.yaml"): "nodata.yaml' cannot be loaded: FileNotFoundError",
        generates: "lm task 'writes' generates text",
        f"{asks}@f1": "lm task 'asks' has no metric 'f1': it has acc, acc_norm",
        write(
            "templates", CHOICES, doc_to_text="{{text.nothing()}}"
        ): "cannot be loaded: UndefinedError",
    }
    for spec, line in wrong.items():
        with pytest.raises(LayerscopeError) as error:
            open_lm_tasks(spec)
        assert line in str(error.value) and "\n" not in str(error.value)


def test_what_cannot_be_scored(cli, gpt2: str, write: Write, tmp_path: Path):
    path, masked = (
        write("choices", CHOICES),
        str(tiny.saved(tiny.bert(), tmp_path / "bert", special=True)),
    )
    said = cli("evaluate", masked, "--tasks", f"lm:{path}")
    assert (
        said.status == 2
        and "bert is not a causal language model of transformers with a tokenizer" in said.err
    )
    with pytest.raises(LayerscopeError, match="lm tasks read layers at the site normed"):
        layerscope.evaluate(gpt2, {"lm": path}, sites="raw", progress=False)
    with pytest.raises(LayerscopeError, match="two tasks have the name"):
        layerscope.evaluate(gpt2, [{"lm": path}, f"lm:{path}"], progress=False)
    model, text = tiny.llama(), documents()[1]["text"]
    model.model.embed_tokens.weight.data[tiny.tokenizer(special=False).encode(text)[0]] = torch.nan
    with pytest.raises(LayerscopeError, match="LlamaForCausalLM gives NaN at layer 1 after 'w"):
        layerscope.evaluate(
            model, {"lm": path}, processor=tiny.tokenizer(special=False), progress=False
        )
    model.model.norm.weight.data[:] = torch.nan
    with pytest.raises(LayerscopeError, match="NaN or infinity"):
        layerscope.evaluate(
            model, {"lm": path}, processor=tiny.tokenizer(special=False), progress=False
        )
    loud = tiny.gpt2()
    loud.lm_head.weight.data *= 1e4
    with pytest.raises(
        LayerscopeError, match="lm-evaluation-harness fails at layer 3: OverflowError: math range"
    ):
        layerscope.evaluate(
            loud,
            {"lm": f"{write('word', WORD)}@perplexity"},
            processor=tiny.tokenizer(special=False),
            progress=False,
        )
    lm = LayerLM(gpt2, progress=False)
    with pytest.raises(
        LayerscopeError, match="its continuation 65: tiny-gpt2 takes 1 or more, and 1 to 64"
    ):
        lm._loglikelihood_tokens([(None, [5], [6] * 65)])
    with pytest.raises(LayerscopeError, match="generates no text"):
        lm.generate_until([])
    with pytest.raises(
        LayerscopeError, match="layer 4 does not exist: tiny-gpt2 has the layers 0 to 3"
    ):
        LayerLM(gpt2, layers=4)


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch):
    for name in [
        name for name in sys.modules if name.startswith("layerscope.evaluation.l") and "lm" in name
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lm_eval.api.registry", None)
    with pytest.raises(
        LayerscopeError, match=r'need lm-evaluation-harness: pip install "layerscope\[lm-eval\]"'
    ):
        layerscope.evaluate("tiny-gpt2", "lm:arc_easy")
