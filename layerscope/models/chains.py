"""Which of a probe's calls may be the blocks: what the model declares, what it checkpoints, what is alike in a row."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from layerscope.models.forward import Inputs
from layerscope.models.stages import Chain, stage_chains
from layerscope.models.trace import Call, is_norm, same


def candidates(
    entry: nn.Module, prefix: str, calls: list[Call], blocks: str | None
) -> Iterator[tuple[str, list[Chain]]]:
    """Yield how blocks were looked for, and the chains found so, the surest way first; `blocks` is the user's word."""
    if blocks is not None:
        inside = [c for c in calls if c.path == blocks or c.path.rpartition(".")[0] == blocks]
        kept = [c for c in inside if c.keeps_shape]  # the user knows what stands between them
        yield "given", [kept] if kept else []
        return
    declared = _declared(entry, prefix)
    chosen = {
        "the model's own declaration": [c for c in calls if c.path in declared],
        "checkpointing layers": [c for c in calls if _is_checkpointing(c.module)],
    }
    for how, selected in chosen.items():
        yield how, stage_chains(selected, calls, _inside_stage)
        yield how, _outermost(_chains(selected))
    config = getattr(entry, "config", None)
    told = getattr(config, "num_hidden_layers", None)
    like = _largest([chain for chain in _chains(calls, same_class=True) if len(chain) > 1])
    yield "structure", [chain for chain in like if told in (None, len(chain))]
    if config is None:
        yield "structure", _largest([chain for chain in _chains(calls) if len(chain) > 1])


def _declared(entry: nn.Module, prefix: str) -> set[str]:
    """Paths of the modules whose outputs the model itself declares to be its hidden states."""
    paths: set[str] = set()
    for name, owner in entry.named_modules():
        specs = (getattr(owner, "_can_record_outputs", None) or {}).get("hidden_states", ())
        specs = specs if isinstance(specs, (list, tuple)) else (specs,)
        named = [getattr(spec, "target_class", spec) for spec in specs]
        classes = tuple(kind for kind in named if isinstance(kind, type))
        base = prefix + name + ("." if name else "")
        paths |= {base + child for child, module in owner.named_modules() if classes and isinstance(module, classes)}
    return paths


def _inside_stage(calls: list[Call]) -> list[Chain]:
    """The blocks of one stage."""
    marked = _outermost(_chains([c for c in calls if _is_checkpointing(c.module)]))
    return marked or _largest([chain for chain in _chains(calls, same_class=True) if len(chain) > 1])


def has_every_token(call: Call, inputs: Inputs) -> bool:
    """Return whether a call gives a state for every token of a text: not an expert's, and not with channels first."""
    ids = inputs.named.get("input_ids")
    return ids is None or (call.returned.ndim == 3 and call.returned.shape[1] >= ids.shape[1])


def _is_checkpointing(module: nn.Module) -> bool:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return isinstance(module, GradientCheckpointingLayer)


def _chains(calls: list[Call], same_class: bool = False) -> list[Chain]:
    """Join calls into chains in which the output of each is the input of the next, of one width."""
    chains: list[Chain] = []
    for call in calls:
        if not call.keeps_shape or same(call.given, call.returned):
            continue  # dropout and identity pass a state on; they are no blocks
        for chain in reversed(chains):
            last = chain[-1]
            if same_class and type(last.module) is not type(call.module):
                continue
            if not call.path.startswith(last.path + ".") and same(last.returned, call.given):
                chain.append(call)
                break
        else:
            chains.append([call])
    return chains


def _outermost(chains: list[Chain]) -> list[Chain]:
    """Leave out chains that run inside a block of another chain."""
    roots = [{c.path + "." for c in chain} for chain in chains]
    return [
        chain
        for i, chain in enumerate(chains)
        if not any(chain[0].path.startswith(root) for j, other in enumerate(roots) if j != i for root in other)
    ]


def _largest(chains: list[Chain]) -> list[Chain]:
    """The chain with the most parameters, without a norm at its end; on a tie the longer, then the outer one."""

    def size(chain: list[Call]) -> tuple[int, int, int]:
        modules = {id(c.module): c.module for c in chain}
        weights = sum(p.numel() for m in modules.values() for p in m.parameters())
        return weights, len(chain), -chain[0].path.count(".")

    chains = [_without_norms(chain) for chain in chains]
    chains = [chain for chain in chains if len(chain) > 1]
    return [max(chains, key=size)] if chains else []


def _without_norms(chain: list[Call]) -> list[Call]:
    start, stop = 0, len(chain)
    while stop > start and is_norm(chain[stop - 1]):
        stop -= 1
    while start < stop and is_norm(chain[start]):
        start += 1
    return chain[start:stop]
