from .removal import Choice as Choice, Removal as Removal
from .selection import Candidate as Candidate, Selection as Selection
from .selector import select as select
