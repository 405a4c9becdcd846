"""The command and its sub-commands, each imported when it is used."""

from __future__ import annotations

from cyclopts import App, Group
from cyclopts.config import Toml

SETTINGS = "layerscope.toml"
COMMANDS = {
    "See": {
        "demo": "Profile the embedded MiniLM on the docstrings of Python's library: no download, about a minute.",
        "profile": "Measure every layer of a model over your data in one pass.",
        "inspect": "Show what is found in a model: blocks, final norm, head, and what a run would take.",
        "lens": "Show what every layer would predict, token by token, and where predictions settle.",
        "compare": "Compare runs: which layers are alike, where metrics differ, and what training changes.",
    },
    "Choose": {
        "evaluate": "Score every layer of a model on tasks, and the model as shipped; every text is embedded once.",
        "scores": "Show published scores by layer, and which metrics predict them.",
        "select": "Choose a layer: what it scores, gains and costs, and how far that can be trusted.",
    },
    "Use": {
        "truncate": "Write a model that ends at a layer: a standard checkpoint, checked against the full model.",
        "train": "Train a model so that every layer can be its last; the result is a standard checkpoint.",
        "exits": "Let easy samples leave early, with a guarantee, and see what that gains on your machine.",
        "report": "Write one HTML page about runs, scores, exits and comparisons; it opens offline.",
    },
    "Papers": {
        "reproduce": "Run the claims of the two papers, and say which held: figures, tables and theorems by name.",
    },
}
"""Each command's summary, the first sentence of its verb's docstring, by what one wants."""


def _version() -> str:
    from layerscope import __version__

    return f"layerscope {__version__}"


app = App(
    name="layerscope",
    help="See what every layer of a model knows, find the layer that serves you best, and use it.",
    help_epilogue=f"Start here: layerscope demo, then layerscope profile MODEL --data FILE.\n"
    f"Defaults of your own: a table for each command in {SETTINGS}, such as [profile] with samples = 5000.",
    help_format="plaintext",
    version=_version,
    config=Toml(SETTINGS),
    group_commands=Group("Options", sort_key=len(COMMANDS)),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
for _rank, (_title, _summaries) in enumerate(COMMANDS.items()):
    _group = Group(_title, sort_key=_rank)
    for _row, (_name, _summary) in enumerate(_summaries.items()):
        app.command(f"layerscope.cli.{_name}:{_name}", name=_name, help=_summary, group=_group, sort_key=_row)
app.register_install_completion_command(help="Install completion for your shell.")
