"""Documents as figures for a paper: PNG, PDF and SVG, in one style."""
