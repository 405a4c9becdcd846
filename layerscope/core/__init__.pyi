from .errors import (
    LayerscopeError as LayerscopeError,
    choices as choices,
    count as count,
    spans as spans,
)
from .extras import require as require
from .files import aside as aside, write_json as write_json
from .option_kinds import (
    IN_CODE as IN_CODE,
    Folder as Folder,
    OneOf as OneOf,
    Repeated as Repeated,
    Whole as Whole,
)
from .options import (
    DATA as DATA,
    MODEL as MODEL,
    OUTPUT as OUTPUT,
    Options as Options,
    checked as checked,
)
from .progress import Reporter as Reporter, reporting as reporting
from .saved import FORMAT as FORMAT, jsonable as jsonable, versions as versions
