from .reading import Reading as Reading, grids as grids, open_reading as open_reading
from .verb import lens as lens
