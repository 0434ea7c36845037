"""Which experts a token goes to."""

from router.gate import Gate, GateSpec

__all__ = ["Gate", "GateSpec"]
