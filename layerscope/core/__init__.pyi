from .errors import (
    LayerscopeError as LayerscopeError,
    capital as capital,
    choices as choices,
    count as count,
    first_line as first_line,
    folder_name as folder_name,
    listed as listed,
    near as near,
    spans as spans,
    unreadable as unreadable,
)
from .extras import require as require
from .files import aside as aside, existing as existing, write_json as write_json
from .folders import own_folder as own_folder
from .hub import go_offline_without_hub as go_offline_without_hub
from .option_kinds import (
    IN_CODE as IN_CODE,
    SEED as SEED,
    Folder as Folder,
    Number as Number,
    OneOf as OneOf,
    Repeated as Repeated,
    Several as Several,
    Whole as Whole,
)
from .options import (
    DATA as DATA,
    MODEL as MODEL,
    OUTPUT as OUTPUT,
    Loading as Loading,
    Options as Options,
    Reading as Reading,
    checked as checked,
)
from .prefetch import ahead as ahead
from .processes import Team as Team
from .progress import Reporter as Reporter, reporting as reporting
from .saved import (
    FORMAT as FORMAT,
    Store as Store,
    jsonable as jsonable,
    versions as versions,
)
from .stopwatch import Stopwatch as Stopwatch, machine as machine
