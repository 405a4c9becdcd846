from . import (
    evaluation as evaluation,
    inputs as inputs,
    metrics as metrics,
    probes as probes,
    runs as runs,
    scores as scores,
)
from .comparison import (
    Comparison as Comparison,
    compare as compare,
    open_comparison as open_comparison,
)
from .core.errors import LayerscopeError as LayerscopeError
from .core.hub import push_to_hub as push_to_hub
from .early_exit import (
    ExitReport as ExitReport,
    exits as exits,
    open_exit_report as open_exit_report,
)
from .evaluation import evaluate as evaluate
from .extraction import (
    Extraction as Extraction,
    Extractor as Extractor,
    extract as extract,
    open_extraction as open_extraction,
)
from .generation import (
    DraftReport as DraftReport,
    Generation as Generation,
    generate as generate,
    open_draft_report as open_draft_report,
    open_generation as open_generation,
)
from .logit_lens import Reading as Reading, lens as lens, open_reading as open_reading
from .models.verb import inspect as inspect
from .profiling import profile as profile
from .reports.verb import report as report
from .runs import Run as Run, open_run as open_run
from .scores import Evaluation as Evaluation, open_evaluation as open_evaluation
from .selection import (
    Selection as Selection,
    open_removal as open_removal,
    open_selection as open_selection,
    select as select,
)
from .shrinking import Shrunk as Shrunk, open_shrunk as open_shrunk, shrink as shrink
from .training.verb import train as train
from .truncation import truncate as truncate

__version__: str
