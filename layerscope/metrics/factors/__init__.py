"""What metrics are computed from: each kind has its shared factors, and the record of how a run takes a metric."""
