"""The text-classification pipeline of a classifier that reads the mean of the tokens.

A copy of this file lies beside every such checkpoint: transformers runs it, on its own, for
`pipeline("text-classification", model=folder, trust_remote_code=True)`.
"""

from typing import Any

from transformers import TextClassificationPipeline


class MeanTextClassification(TextClassificationPipeline):  # type: ignore[misc]  # transformers is not typed
    """Text classification by a token classifier: a text's logits are the mean of its tokens' logits."""

    def _forward(self, model_inputs: Any) -> Any:
        """Return logits `[B, K]`, averaged over the attention mask."""
        output = super()._forward(model_inputs)
        mask = model_inputs["attention_mask"].unsqueeze(-1).to(output.logits.dtype)
        counts = mask.sum(1).clamp_min(1)
        output["logits"] = (output.logits * mask).sum(1) / counts
        return output

    def check_model_type(self, supported_models: Any) -> None:
        """Accept the token classifier, which transformers would warn about."""
