from .lens_reader import lens as lens
from .reading import Reading as Reading, grids as grids, open_reading as open_reading
