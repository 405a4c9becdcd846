from .removal import Choice as Choice, Removal as Removal, open_removal as open_removal
from .selection import (
    Candidate as Candidate,
    Selection as Selection,
    open_selection as open_selection,
)
from .verb import select as select
