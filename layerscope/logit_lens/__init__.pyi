from .document import grids as grids
from .reading import Reading as Reading, open_reading as open_reading
from .verb import lens as lens
