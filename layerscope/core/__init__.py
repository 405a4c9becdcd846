"""What every room uses: errors, progress, processes, and files that are written whole or not at all."""
