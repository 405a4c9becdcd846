from .selection import Candidate as Candidate, Selection as Selection
from .selector import select as select
