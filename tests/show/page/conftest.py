import pytest

from layerscope.reports.verb import report


@pytest.fixture(scope="session")
def several(labelled, language, bare, tmp_path_factory):
    """The page of three runs."""
    return report(
        [labelled, language, bare], tmp_path_factory.mktemp("page") / "several.html"
    )
