from .extraction import Extraction as Extraction, open_extraction as open_extraction
from .extractor import Extractor as Extractor
from .verb import extract as extract
