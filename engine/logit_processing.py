"""What parameters do to logits before a token is chosen.

In this order: logit_bias, repetition, frequency and presence penalty, min_tokens, then (for random draws only)
temperature, top_k, top_p, min_p.

Shape suffixes: R requests, V vocabulary, P requests that draw at random.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from engine.request import Request
from engine.sampling_params import SamplingParams


def adjust_logits(logits_RV: Tensor, requests: Sequence[Request]) -> None:
    """Bias, penalties and the ban on stopping early, in place, row by row: only rows that ask for one are touched."""
    for row, request in enumerate(requests):
        params = request.params
        if params.logit_bias:
            _add(logits_RV[row], params.logit_bias)
        if params.repetition_penalty != 1.0:
            _penalise_repetition(logits_RV[row], request.token_ids, params.repetition_penalty)
        if params.frequency_penalty != 0.0 or params.presence_penalty != 0.0:
            counts = Counter(request.token_ids[request.num_prompt_tokens :])
            frequency, presence = params.frequency_penalty, params.presence_penalty
            _add(logits_RV[row], {token: -frequency * count - presence for token, count in counts.items()})
        if request.must_not_stop and request.stop_ids:
            logits_RV[row, list(request.stop_ids)] = -torch.inf


def filter_logits(logits_PV: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Temperature, then -inf for every token that top_k, top_p or min_p rules out. The likeliest always stays."""
    temperature_P = torch.tensor([p.temperature for p in params], device=logits_PV.device)
    logits_PV = logits_PV / temperature_P.unsqueeze(1)
    narrowed = [row for row, p in enumerate(params) if p.top_k > 0 or p.top_p < 1.0]
    if narrowed:
        logits_PV[narrowed] = _keep_top(logits_PV[narrowed], [params[row] for row in narrowed])
    for row, p in enumerate(params):
        if p.min_p > 0.0:
            # p_i < min_p * p_max, in logs
            floor = logits_PV[row].amax() + torch.log(torch.tensor(p.min_p, device=logits_PV.device))
            logits_PV[row].masked_fill_(logits_PV[row] < floor, -torch.inf)
    return logits_PV


def _keep_top(logits_PV: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """top_k, then the smallest set of tokens whose probability among those k reaches top_p."""
    vocab = logits_PV.shape[1]
    sorted_PV, order_PV = logits_PV.sort(dim=-1, descending=True, stable=True)
    top_k_P1 = torch.tensor([[p.top_k or vocab] for p in params], device=logits_PV.device)
    top_p_P1 = torch.tensor([[p.top_p] for p in params], dtype=torch.float64, device=logits_PV.device)
    beyond_k = torch.arange(vocab, device=logits_PV.device) >= top_k_P1
    sorted_PV = sorted_PV.masked_fill(beyond_k, -torch.inf)
    probs_PV = torch.softmax(sorted_PV, dim=-1, dtype=torch.float64)  # in float32 the sum may pass 1 early
    before_PV = probs_PV.cumsum(dim=-1) - probs_PV  # a token stays if those likelier than it do not reach top_p
    ruled_out = (before_PV >= top_p_P1) & (top_p_P1 < 1.0)
    ruled_out[:, 0] = False
    return logits_PV.scatter(1, order_PV, sorted_PV.masked_fill(ruled_out, -torch.inf))


def _penalise_repetition(logits_V: Tensor, token_ids: Sequence[int], penalty: float) -> None:
    """Divide positive logits of tokens seen in prompt or output, multiply negative ones (CTRL, arXiv:1909.05858)."""
    seen = torch.tensor(sorted(set(token_ids)), device=logits_V.device)
    values = logits_V[seen]
    logits_V[seen] = torch.where(values > 0, values / penalty, values * penalty)


def _add(logits_V: Tensor, amounts: Mapping[int, float]) -> None:
    if amounts:
        ids = torch.tensor(list(amounts.keys()), device=logits_V.device)
        logits_V[ids] += torch.tensor(list(amounts.values()), dtype=logits_V.dtype, device=logits_V.device)
