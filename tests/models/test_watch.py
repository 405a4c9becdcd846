"""What runs beside the blocks, trains or breaks does not change what is found inside them."""

import pytest
import torch
from models.test_capture import states
from models.test_sublayers import Plain, Stacked, opened
from models.tokenizer import word_tokenizer
from models.zoo import D, bert, build
from torch import Tensor, nn

from layerscope import inspect
from layerscope.models import inspection


class Sharing(Stacked):
    """Blocks whose one norm runs before the first and after the last of them as well."""

    def __init__(self) -> None:
        norm = nn.LayerNorm(D)
        super().__init__(*(Plain(norm) for _ in range(3)))
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(super().forward(self.norm(x)))


@torch.no_grad()
def test_a_module_that_runs_outside_of_the_blocks_too_is_seen_inside_them() -> None:
    model, rows = build(Sharing), torch.randn(3, 9, D)
    scope = opened(model, "tensor", list(rows))
    assert (
        scope.sublayers.sites == {"mlp_norm": (1, 2, 3), "mlp": (1, 2, 3)}
        and scope.sublayers.notes == ()
    )
    found = states(scope, list(rows))
    for layer, block in enumerate(model.blocks, 1):
        torch.testing.assert_close(found["mlp_norm", layer], model.norm(found["raw", layer - 1]))
        torch.testing.assert_close(found["mlp", layer], block.inner(found["mlp_norm", layer]))
    assert inspect(model, data=rows)[0].sublayers == ("mlp_norm", "mlp")


def test_inspect_evaluates_a_model_and_outlives_blocks_that_cannot_be_watched(
    monkeypatch,
) -> None:
    model = bert().train()
    sites = inspect(model, processor=word_tokenizer())[0].sublayers
    assert sites == ("attn", "attn_residual", "attn_norm", "mlp", "mlp_residual") and model.training

    # as a forward of an unforeseen kind may
    monkeypatch.setattr(inspection, "find_sublayers", lambda *_: [][0])
    assert inspect(model, processor=word_tokenizer())[0].sublayers == ()
    monkeypatch.setattr(inspection, "find_sublayers", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        inspect(model, processor=word_tokenizer())
