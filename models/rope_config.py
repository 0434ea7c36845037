"""The rotary part of a config.json, in both the forms that are in use."""

from __future__ import annotations

from models.config_json import ConfigJson
from models.spec import LinearScaling, Llama3Scaling, RopeSpec


def read_rope(config: ConfigJson, default_theta: float) -> RopeSpec:
    """RopeSpec from `rope_parameters`, or from the older `rope_theta` and `rope_scaling`.

    Raises:
        ValueError: a rope type that is not served, or a field of it that is missing; names it.
    """
    name = "rope_scaling" if config.has("rope_scaling") else "rope_parameters"
    rope = config.inner(name)
    theta = rope.number("rope_theta", config.number("rope_theta", default_theta))
    for holder in (rope, config):
        if holder.number("partial_rotary_factor", 1.0) != 1.0:
            raise holder.error("partial_rotary_factor", "other than 1 is not supported")
    return RopeSpec(theta, _read_scaling(config, rope))


def _read_scaling(config: ConfigJson, rope: ConfigJson) -> LinearScaling | Llama3Scaling | None:
    rope_type = rope.text("rope_type", rope.text("type", "default"))
    match rope_type:
        case "default":
            return None
        case "linear":
            return LinearScaling(_factor(rope))
        case "llama3":
            original = rope.positive("original_max_position_embeddings", config.positive("max_position_embeddings"))
            return Llama3Scaling(
                factor=_factor(rope),
                low_freq_factor=rope.number("low_freq_factor"),
                high_freq_factor=rope.number("high_freq_factor"),
                original_max_positions=config.positive("original_max_position_embeddings", original),
            )
    raise rope.error("rope_type", f"{rope_type!r} is not supported (default, linear and llama3 are)")


def _factor(rope: ConfigJson) -> float:
    factor = rope.number("factor")
    if factor < 1:
        raise rope.error("factor", f"must be at least 1, found {factor}")
    return factor
