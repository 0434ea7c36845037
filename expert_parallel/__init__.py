"""Running tokens through the experts their gate chose."""

from expert_parallel.experts import ExpertWeights, run_moe

__all__ = ["ExpertWeights", "run_moe"]
