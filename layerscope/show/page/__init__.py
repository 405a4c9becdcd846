"""Documents as a page: one HTML file that opens offline and asks for nothing outside itself."""
