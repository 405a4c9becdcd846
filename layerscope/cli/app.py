"""The command, its sub-commands, each imported when it is used, and the one line that a wrong command line gets."""

import re
import sys
from collections.abc import Sequence

from cyclopts import (
    App,
    CoercionError,
    CycloptsError,
    Group,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

import layerscope
from layerscope.core import first_line, near
from layerscope.core.errors import spelled, use_flags
from layerscope.core.removed_options import instead_of

FULL = re.compile(
    r"No space left|File too large|[Qq]uota|PytorchStreamWriter|unexpected pos"
    r"|\(os error (27|28|122)\)"
)
"""What libraries say that may write no more."""
COMMANDS = {
    "Commands": {
        "shrink": "Make a model smaller within a budget: a standard checkpoint, healed, and judged on held-out data.",
        "profile": "Measure every layer of a model over your data in one pass.",
        "evaluate": "Score every layer of a model and the model as shipped on tasks; every text is embedded once.",
        "select": "Choose a layer, or blocks to drop: what it scores, gains and costs, and how far to trust that.",
        "truncate": "Write a model that ends at a layer or lacks blocks: a standard checkpoint, checked and measured.",
        "train": "Train a model so that every layer can be its last; the result is a standard checkpoint.",
        "exits": "Let easy samples leave early, or early layers draft text, and see what that gains on your machine.",
        "report": "Write one HTML page about results of any kind; it opens offline.",
    },
    "Research": {
        "lens": "Show what every layer would predict, token by token, and where predictions settle.",
        "compare": "Compare runs: which layers are alike, where metrics differ, and what training changes.",
        "scores": "Show published scores by layer, and which metrics predict them.",
        "reproduce": "Test the claims of the two papers, figure by figure, and report which held.",
        "extract": "Write the states of chosen layers for all your data, in one process or in many.",
        "generate": "Generate text at any depth of a language model, and measure its quality by layer.",
        "inspect": "Show what layerscope finds in a model (blocks, final norm, head) and what a run would cost.",
    },
}
"""Each command's summary, the first sentence of its verb's docstring, in the order of rank."""
MODULES = {
    "see": ("profile", "inspect", "lens", "compare"),
    "choose": ("evaluate", "scores", "select"),
    "use": ("shrink", "truncate", "train", "exits", "generate", "extract", "report"),
    "papers": ("reproduce",),
}
"""The commands of each module."""
HOMES = {name: module for module, names in MODULES.items() for name in names}
START = "layerscope profile minilm --data stdlib-docs"
NAMES = [name for summaries in COMMANDS.values() for name in summaries]


app = App(
    name="layerscope",
    help="See what every layer of a model knows, find the layer that serves you best, and use it.",
    help_epilogue=f"Start here: {START}, then layerscope profile MODEL --data FILE.",
    help_format="plaintext",
    version=f"layerscope {layerscope.__version__}",
    group_commands=Group("Options", sort_key=len(COMMANDS)),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
for _rank, (_title, _summaries) in enumerate(COMMANDS.items()):
    _group = Group(_title, sort_key=_rank)
    for _row, (_name, _summary) in enumerate(_summaries.items()):
        app.command(
            f"layerscope.cli.{HOMES[_name]}:{_name}",
            name=_name,
            help=_summary,
            group=_group,
            sort_key=_row,
        )
app.register_install_completion_command(help="Install completion for your shell.")


def explained(error: CycloptsError) -> str:
    """Return the line on an error of the parser, with the near name and the mend."""
    chain = error.command_chain or ()
    command = " ".join(("layerscope", *chain))
    word = next(iter(error.unused_tokens or []), "")
    if isinstance(error, UnknownOptionError):
        return _unknown(str(error.token.keyword or error.token.value), command, chain)
    if isinstance(error, UnknownCommandError):
        return _unknown(word, command, chain)
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.argument.name
        if name.startswith("-") and name in sys.argv:
            return f"option {name} needs a value: {command} --help shows which"
        return f"{command} needs {name}: {command} --help shows an example"
    if isinstance(error, UnusedCliTokensError):
        mend = "name its option, and put texts with spaces in quotes"
        return f"{word!r} is one word too many for {command}: {mend}"
    token = getattr(error, "token", None)
    if isinstance(error, CoercionError) and token is not None and token.keyword:
        return f"option {token.keyword} takes no value: {command} --help shows how"
    reason = str(error).strip().rstrip(".")
    return f"{reason}: {command} --help shows how"


def _unknown(word: str, command: str, chain: Sequence[str]) -> str:
    """Return the line on an option or a command that does not exist, or is gone."""
    name = word.strip("-").replace("-", "_")
    names = NAMES
    kind = "command"
    if word.startswith("-"):
        names = _options(chain)
        kind = "option"
    if mend := instead_of("".join(chain), name):
        use_flags(names)
        return spelled(f"{kind} {word} is gone: {mend}")
    hint = near(word, names)
    mend = f"{command} --help lists them"
    if hint:
        return f"{kind} {word} does not exist{hint} ({mend})"
    return f"{kind} {word} does not exist: {mend}"


def _options(chain: Sequence[str]) -> list[str]:
    """Return the options of a command, or those of layerscope itself."""
    if not chain:
        return [*app.help_flags, *app.version_flags]
    command = app[chain[0]]
    names = [*command.help_flags, *command.version_flags]
    for argument in command.assemble_argument_collection():
        names += argument.names
    return names


def machine(error: Exception) -> str | None:
    """Return the line on an error that is not the program's but the machine's: of its files or its memory."""
    line = first_line(error)
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "out of memory: take fewer samples, a smaller --batch-size or a smaller model, then run it again"
    if FULL.search(str(error)):
        return f"a file cannot be written ({line}): make room, then run the same command again"
    if isinstance(error, OSError) and error.strerror is not None:
        return f"a file cannot be used ({line}): check what is there, then run the same command again"
    return None
