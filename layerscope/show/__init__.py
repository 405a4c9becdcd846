"""Documents, and how they are shown: in a terminal and in a notebook."""
