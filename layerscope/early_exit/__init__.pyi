from .calibration import Calibration as Calibration
from .exit_model import ExitModel as ExitModel, ExitOutput as ExitOutput
from .exit_report import ExitReport as ExitReport, open_exit_report as open_exit_report
from .next_token import NextTokenExits as NextTokenExits
from .verb import exits as exits
