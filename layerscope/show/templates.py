"""Templates of HTML, which escape every text that they are filled with."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from layerscope.show.plain import plain


def templates(package: str) -> Environment:
    """Return the templates in the folder `files` of a package; `plain` fits names and texts for them."""
    environment = Environment(
        loader=PackageLoader(package, "files"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = plain
    return environment
