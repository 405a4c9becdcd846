"""States come to the processor in one copy for each number type, whatever their shapes."""

import torch
from torch import Tensor

from layerscope.models.forward import on_host


class Elsewhere(Tensor):
    """A tensor that says it is on another device, and counts how often tensors are copied from there."""

    copies = 0

    @property
    def device(self) -> torch.device:
        return torch.device("cuda")

    def cpu(self) -> Tensor:
        Elsewhere.copies += 1
        return self.as_subclass(Tensor)


def test_each_number_type_is_copied_once() -> None:
    generator = torch.Generator().manual_seed(0)
    whole = {
        "states": torch.randn(3, 4, 5, generator=generator),
        "entropy": torch.randn(3, 4, generator=generator),
        "none": torch.empty(0),
        "broken": torch.randint(-1, 3, (4,), generator=generator).int(),
        "half": torch.randn(2, 3, generator=generator).half().T,
    }
    here = torch.arange(3.0)
    found = on_host(
        {name: one.as_subclass(Elsewhere) for name, one in whole.items()} | {"here": here}
    )
    assert Elsewhere.copies == 3 and found["here"] is here
    assert all(
        torch.equal(found[name], one) and type(found[name]) is Tensor for name, one in whole.items()
    )
