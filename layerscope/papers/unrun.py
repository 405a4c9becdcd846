"""What the papers show and no recipe runs, with what each would need."""

UNRUN: dict[str, tuple[str, str]] = {
    "T-fig8": (
        "AlignedBERT is above BERT at every layer (figures 8 and 21)",
        "trainings on six GLUE tasks, which take a GPU; train --preset tracing-glue is one of them",
    ),
    "T-fig17": ("Aligned layers transfer better under a shift", "images of another source, as CIFAR-10.2"),
    "T-fig18": ("Detection by decoder layer", "DETR on COCO"),
    "T-fig19": (
        "Saturation and the grid of layers and tokens in Llama 3 (figures 19 and 20)",
        "Llama-3.2-3B and Llama-3.1-8B; lens draws both for any language model",
    ),
    "T-fig22": (
        "Similarity within and across CLIP's towers (figures 22 and 23)",
        "CLIP-B/32; compare draws it for any run of pairs",
    ),
    "L-fig5": ("Reasoning models keep more entropy along the sequence", "Qwen2.5 and Qwen2.5-Math"),
    "L-fig7": ("Figure 7", "a reading of what it claims"),
    "L-fig9": ("Figure 9", "a reading of what it claims"),
    "L-fig10": ("Figure 10", "a reading of what it claims"),
    "L-fig13": ("Fine-tuning for embeddings improves invariance", "Llama-3-8B and LLM2Vec"),
    "L-fig14": ("Only autoregressive image models have the valley", "AIM, and attention probes on ImageNet"),
    "L-thm2": ("Dataset entropy grows with prompt entropy", "a bound at finite sizes; the paper has its growth alone"),
    "Q-speech": ("Do speech models have better middle layers?", "trained speech models: Wav2Vec2, HuBERT, Whisper"),
    "Q-parse": ("Do tasks unlike classification suffer from alignment?", "aligned models trained on tags of words"),
    "Q-diversity": (
        "Does the diversity of a corpus move the best layer?",
        "models trained on other corpora",
    ),
    "Q-autoregressive": ("Why does similarity not rise in some models?", "trained models in which it does not"),
}
"""Recipes that are not there: a title, and what is missing."""
