"""Documents as figures for a paper: PNG and PDF, in one style."""
