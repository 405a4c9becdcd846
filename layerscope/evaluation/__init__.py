from layerscope.evaluation.probes import ProbeScore, knn_probe, linear_probe

__all__ = ["ProbeScore", "knn_probe", "linear_probe"]
