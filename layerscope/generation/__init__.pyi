from .draft_report import (
    DraftReport as DraftReport,
    open_draft_report as open_draft_report,
)
from .generation import Generation as Generation, open_generation as open_generation
from .speculated import Speculated as Speculated
from .speculation import SelfSpeculation as SelfSpeculation
from .verb import generate as generate
