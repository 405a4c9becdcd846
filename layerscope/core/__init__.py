"""What every room stands on: errors, progress, processes, and files that are written whole or not at all."""
