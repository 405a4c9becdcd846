from .pages import opened as opened
from .reporter import report as report
