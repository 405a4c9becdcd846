"""Results of any kind on one page and in figures, both from their documents."""
