"""How the site is built: `make docs`, from pages in Markdown, notebooks run while it is built, and docstrings."""

import sys
from pathlib import Path

import layerscope

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project, author, project_copyright = (
    "layerscope",
    "layerscope developers",
    "layerscope developers",
)
version = release = layerscope.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "from_the_code",
]
exclude_patterns = ["_build"]
html_theme, html_title = "furo", "layerscope"
html_static_path, html_css_files = ["_static"], ["wide.css"]
default_role = "code"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode, nb_execution_cache_path = "cache", "build/notebooks"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams, nb_output_stderr = True, "remove"
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
autodoc_member_order = "bysource"
autodoc_typehints, autodoc_class_signature = "none", "separated"
napoleon_google_docstring, napoleon_numpy_docstring = True, False
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
