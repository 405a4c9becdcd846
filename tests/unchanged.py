"""What a model is beside what it computes, to be equal before and after somebody worked with it."""

import copy

import torch

HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks_with_kwargs",
)


def state_of(model):
    """Return settings, weights to the bit, and of each module its mode, hooks and whether its forward is replaced."""
    settings = [model.config.to_dict()]
    if model.can_generate():
        settings.append(model.generation_config.to_dict())
    modules = [
        (
            name,
            child.training,
            "forward" in vars(child),
            *(dict(getattr(child, hook)) for hook in HOOKS),
        )
        for name, child in model.named_modules()
    ]
    weights = {
        name: tensor.flatten().view(torch.uint8).tolist()
        for name, tensor in model.state_dict().items()
    }
    return copy.deepcopy(settings), modules, weights
