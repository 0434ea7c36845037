"""Tables of rotary angles.

Shape suffixes: P positions, h half of head_dim, T tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from models.spec import LinearScaling, Llama3Scaling, RopeSpec


class RopeTables:
    """cos and sin of every position's angles in float32, [max_positions, head_dim / 2] each."""

    def __init__(self, spec: RopeSpec, head_dim: int, max_positions: int, device: torch.device) -> None:
        positions_P = torch.arange(max_positions, dtype=torch.float32)
        angles_Ph = torch.outer(positions_P, inverse_frequencies(spec, head_dim))
        self._cos_Ph = angles_Ph.cos().to(device)
        self._sin_Ph = angles_Ph.sin().to(device)

    def at(self, positions_T: Tensor) -> tuple[Tensor, Tensor]:
        """cos_T1h and sin_T1h of the positions; the middle axis broadcasts over heads."""
        return self._cos_Ph[positions_T].unsqueeze(1), self._sin_Ph[positions_T].unsqueeze(1)


def inverse_frequencies(spec: RopeSpec, head_dim: int) -> Tensor:
    """theta^(-2i / head_dim) for i < head_dim / 2, scaled as the spec says, [h] in float32."""
    frequencies_h = 1.0 / spec.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    match spec.scaling:
        case None:
            return frequencies_h
        case LinearScaling(factor):
            return frequencies_h / factor
        case Llama3Scaling():
            return _llama3(frequencies_h, spec.scaling)


def _llama3(frequencies_h: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Meta's `apply_scaling` of Llama 3.1: blends kept and stretched by how many turns fit the original context."""
    turns_h = scaling.original_max_positions * frequencies_h / (2 * math.pi)
    kept_h = (turns_h - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept_h = kept_h.clamp(0.0, 1.0)
    return kept_h * frequencies_h + (1 - kept_h) * frequencies_h / scaling.factor
