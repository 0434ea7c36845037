"""How the parts become Serve deployments. A config file's `import_path` is `deployments.app:build_app`."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ray import serve
from ray.serve import Application
from ray.serve.config import BackpressureConfig

from deployments.decode import Decode
from deployments.ingress import Ingress
from deployments.settings import Settings, load_settings

# Beyond the requests an engine may hold: describe, stats and health calls, which must not wait behind them.
_SPARE_CALLS = 64


def build_app(args: Mapping[str, object]) -> Application:
    """ingress -> decode.

    Raises:
        ValueError: for wrong `args`; names each.
    """
    settings = load_settings(args)
    return _ingress(settings, _decode(settings))


def _decode(settings: Settings) -> Application:
    engine, decode = settings.engine, settings.decode
    return serve.deployment(
        name="decode",
        num_replicas=decode.num_replicas,
        # Serve's 5 would starve continuous batching. The engine has the one queue, and refuses in words of its own, so
        # Serve must let through all that the engine could take and a little more.
        max_ongoing_requests=engine.max_num_seqs + engine.max_waiting + _SPARE_CALLS,
        # Unbounded by default. What comes on top of that waits no longer than it takes to be refused.
        max_queued_requests=engine.max_waiting + _SPARE_CALLS,
        ray_actor_options={"num_cpus": decode.num_cpus, "num_gpus": decode.num_gpus},
        # A dead engine answers nothing: look often. A loaded machine is slow to answer: be patient with one answer.
        health_check_period_s=5,
        health_check_timeout_s=30,
        # Long answers may finish when a replica is taken away; Serve asks every 2 s whether they have.
        graceful_shutdown_timeout_s=60,
        graceful_shutdown_wait_loop_s=2,
        # Loading takes long and fails for reasons that do not go away: say so soon.
        max_constructor_retry_count=2,
    )(Decode).bind(settings)


def _ingress(settings: Settings, decode: Application) -> Application:
    engine, ingress = settings.engine, settings.ingress
    most_open = settings.decode.num_replicas * (engine.max_num_seqs + engine.max_waiting)
    return serve.deployment(
        name="ingress",
        num_replicas=ingress.num_replicas,
        # One replica could take all that the engines can hold, and as many again to refuse them with a 429 in the API's
        # shape: beyond this the proxy refuses, in plain text.
        max_ongoing_requests=2 * most_open + _SPARE_CALLS,
        max_queued_requests=math.ceil(most_open / ingress.num_replicas),
        backpressure_config=BackpressureConfig(status_code=503, retry_after_s=1),
        ray_actor_options={"num_cpus": ingress.num_cpus},
        health_check_period_s=5,
        health_check_timeout_s=30,
        graceful_shutdown_timeout_s=60,
        graceful_shutdown_wait_loop_s=2,
        max_constructor_retry_count=2,
    )(serve.ingress()(Ingress)).bind(settings, decode)
