from .shrunk import Shrunk as Shrunk, open_shrunk as open_shrunk
from .verb import shrink as shrink
