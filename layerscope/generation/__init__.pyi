from .draft_report import (
    DraftReport as DraftReport,
    open_draft_report as open_draft_report,
)
from .generation import Generation as Generation, open_generation as open_generation
from .speculation import SelfSpeculation as SelfSpeculation
from .speculative_rounds import Speculated as Speculated
from .verb import generate as generate
