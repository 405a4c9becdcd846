from .corpus import Corpus as Corpus
from .drawing import draw as draw
from .media import resample as resample
from .opening import open_corpus as open_corpus
from .samples import Modality as Modality, Waveform as Waveform, Window as Window
from .streams import Chunk as Chunk, Stream as Stream, open_stream as open_stream
from .views import augment as augment
from .windows import make_extreme as make_extreme, pack as pack
