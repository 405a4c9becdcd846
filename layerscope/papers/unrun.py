"""Claims that no recipe runs, each with what it would need."""

UNRUN: dict[str, tuple[str, str]] = {
    "T-fig8": (
        "Aligned BERT is more accurate than BERT at every layer (figures 8 and 21)",
        "training on six GLUE tasks, which takes a GPU (train has the settings as the preset tracing-glue)",
    ),
    "L-fig5": ("Reasoning models keep prompt entropy higher along the sequence", "Qwen2.5 and Qwen2.5-Math"),
    "L-fig7": ("Figure 7 of the paper", "what the figure claims, as a statistic with a threshold"),
    "L-fig9": ("Figure 9 of the paper", "what the figure claims, as a statistic with a threshold"),
    "L-fig10": ("Figure 10 of the paper", "what the figure claims, as a statistic with a threshold"),
    "L-fig13": ("Fine-tuning for embeddings improves invariance", "Llama-3-8B and LLM2Vec"),
    "L-fig14": ("Only autoregressive image models have the valley", "AIM, and attention probes on ImageNet"),
    "L-thm2": (
        "Dataset entropy grows with prompt entropy",
        "a bound for finite sizes; the paper gives only asymptotic growth",
    ),
    "Q-speech": ("Do speech models have better middle layers?", "trained speech models: Wav2Vec2, HuBERT, Whisper"),
    "Q-diversity": (
        "Does the diversity of a corpus move the best layer?",
        "models trained on corpora of different diversity",
    ),
    "Q-autoregressive": (
        "Why does similarity to the last layer not rise with depth in some models?",
        "trained models in which it does not",
    ),
}
"""By name: the claim, and what a recipe for it would need."""
