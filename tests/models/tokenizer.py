from transformers import PreTrainedTokenizerFast


def word_tokenizer(side="right", pad=True, size=90):
    """A tokenizer of `size` words w3, w4, … that knows no merges: text "w7 w8" is ids 7, 8."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2} | {f"w{i}": i for i in range(3, size)}
    core = Tokenizer(WordLevel(words, unk_token="[SEP]"))
    core.pre_tokenizer = Whitespace()
    extra = {"pad_token": "[PAD]"} if pad else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        padding_side=side,
        unk_token="[SEP]",
        model_input_names=["input_ids", "attention_mask"],
        **extra,
    )


def words(ids):
    return " ".join(f"w{i}" for i in ids)


def saved(model, folder, processor=None):
    """Save a model with the processor, by default that of words."""
    model.save_pretrained(folder)
    (processor or word_tokenizer()).save_pretrained(folder)
    return folder
