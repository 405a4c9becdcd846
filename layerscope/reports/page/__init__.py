"""The page: one HTML file of one or more runs that opens offline and asks for nothing outside itself."""

from layerscope.reports.page.verb import report

__all__ = ["report"]
