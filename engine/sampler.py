"""From logits to tokens, each request by its own parameters and its own random numbers.

Shape suffixes: R requests that sample in this step, V vocabulary, P those of R that draw at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor

from engine.logit_processing import adjust_logits, filter_logits
from engine.outputs import TokenLogprobs
from engine.request import Request


@dataclass(frozen=True, slots=True)
class Sampled:
    """A request's next token; None where its logits were not finite. `logprobs` where it asked for them."""

    token_id: int | None
    logprobs: TokenLogprobs | None


def uniform(seed: int, position: int) -> float:
    """The one random number in [0, 1) that a request with `seed` uses for the token at `position` of its sequence.

    A hash of both, so it depends neither on the batch nor on what was drawn before: a request can be cut, moved or
    replayed from any token and go on with the text it would have had.
    """
    digest = blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def sample(logits_RV: Tensor, requests: Sequence[Request]) -> list[Sampled]:
    """One token for each row. `logits_RV` is float32 and is changed in place."""
    finite = torch.isfinite(logits_RV.amax(dim=-1)).tolist()
    # Of the model's own distribution: taken before anything is adjusted.
    wanted = [row for row, request in enumerate(requests) if request.params.logprobs is not None and finite[row]]
    logprobs_WV = torch.log_softmax(logits_RV[wanted], dim=-1) if wanted else None
    adjust_logits(logits_RV, requests)
    token_ids = logits_RV.argmax(dim=-1)
    drawn = [row for row, request in enumerate(requests) if not request.params.is_greedy and finite[row]]
    if drawn:
        token_ids[drawn] = _draw(logits_RV[drawn], [requests[row] for row in drawn])
    chosen = token_ids.tolist()
    logprobs: dict[int, TokenLogprobs] = {}
    if logprobs_WV is not None:
        counts = [requests[row].params.logprobs or 0 for row in wanted]
        found = gather_logprobs(logprobs_WV, [chosen[row] for row in wanted], counts)
        logprobs = dict(zip(wanted, found, strict=True))
    return [
        Sampled(token_id if ok else None, logprobs.get(row))
        for row, (token_id, ok) in enumerate(zip(chosen, finite, strict=True))
    ]


def gather_logprobs(logprobs_RV: Tensor, token_ids: Sequence[int], top_counts: Sequence[int]) -> list[TokenLogprobs]:
    """Each row's log probability of its token and its likeliest `top_counts[row]`, the likeliest first."""
    index_R1 = torch.tensor(token_ids, device=logprobs_RV.device).unsqueeze(1)
    of_token = logprobs_RV.gather(1, index_R1).squeeze(1).tolist()
    most = min(max(top_counts), logprobs_RV.shape[1])
    values, ids = (t.tolist() for t in logprobs_RV.topk(most, dim=-1))
    return [
        TokenLogprobs(token_id, of_token[row], tuple(zip(ids[row][:count], values[row][:count], strict=True)))
        for row, (token_id, count) in enumerate(zip(token_ids, top_counts, strict=True))
    ]


def _draw(logits_PV: Tensor, requests: Sequence[Request]) -> Tensor:
    """Inverse transform sampling: the first token whose cumulative probability passes the request's number."""
    probs_PV = torch.softmax(filter_logits(logits_PV, [request.params for request in requests]), dim=-1)
    cumulative_PV = probs_PV.to(torch.float64).cumsum(dim=-1)
    numbers = [uniform(request.seed, len(request.token_ids)) for request in requests]
    target_P1 = torch.tensor(numbers, dtype=torch.float64, device=logits_PV.device).unsqueeze(1)
    # Scaled by the sum as it was rounded, so that a number just below 1 still falls on a token that is possible.
    return torch.searchsorted(cumulative_PV, target_P1 * cumulative_PV[:, -1:], right=True).squeeze(1)
