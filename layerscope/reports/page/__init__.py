"""The page: one HTML file of runs and scores that opens offline and asks for nothing outside itself."""

from layerscope.reports.page.pages import opened, report

__all__ = ["opened", "report"]
