"""What the authors published comes with its source and its licence."""

from importlib.resources import files


def test_published_values_name_their_source_and_their_licence():
    folder = files("layerscope_papers") / "published"
    about = (folder / "README.md").read_text("utf-8")
    assert (
        "**Source.**" in about
        and "**Licence.**" in about
        and "https://arxiv.org/abs/2502.02013" in about
    )
    values = [file.name for file in folder.iterdir() if file.name != "README.md"]
    assert len(values) == 6 and all(f"| `{name}` |" in about for name in values)
