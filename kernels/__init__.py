"""The operations a decoder is made of."""

from kernels.paged import PagedBatch
from kernels.reference import apply_rope, linear, paged_attention, rms_norm, silu_mul, store_kv

__all__ = ["PagedBatch", "apply_rope", "linear", "paged_attention", "rms_norm", "silu_mul", "store_kv"]
