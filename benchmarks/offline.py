"""The engine against transformers on the same checkpoint, threads and prompts, in turn, in one run.

    python -m benchmarks.offline --model demo --dtype float32 --threads 2

Prints tokens a second and the ratio of the medians, and how much of the KV cache held no token. `--output` keeps it
as JSON with hardware, command and commit.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine import LLM, SamplingParams
from models import resolve_model

Prompts = list[list[int]]


@dataclass(frozen=True, slots=True)
class Case:
    """`num_new` is 1 for prefill: then the prompt's tokens are counted, else the new ones after the first."""

    name: str
    batch: int
    prompt_len: int
    num_new: int

    @property
    def num_counted(self) -> int:
        return self.batch * (self.prompt_len if self.num_new == 1 else self.num_new - 1)

    def prompts(self, run: int, vocab_size: int) -> Prompts:
        """Other tokens in every run, so that no prefix is found in the cache."""
        generator = torch.Generator().manual_seed(run)
        ids: Prompts = torch.randint(vocab_size, (self.batch, self.prompt_len), generator=generator).tolist()
        return ids


CASES = (
    Case("prefill 512", 1, 512, 1),
    Case("decode B=1", 1, 128, 33),
    Case("decode B=8", 8, 128, 33),
    Case("decode B=16", 16, 128, 33),
)


@dataclass(frozen=True, slots=True)
class Result:
    """Median tokens a second."""

    case: str
    ours: float
    transformers: float

    @property
    def ratio(self) -> float:
        return self.ours / self.transformers


def main() -> None:
    options = _parse()
    torch.set_num_threads(options.threads)
    path = resolve_model(options.model)
    llm = LLM(str(path), dtype=options.dtype, kv_cache_gib=0.5, num_threads=options.threads)
    peer: PreTrainedModel = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, options.dtype))
    results = [_compare(case, llm, peer, options.runs) for case in CASES]
    for result in results:
        print(
            f"{result.case:12} ours {result.ours:8.1f} tok/s   transformers {result.transformers:8.1f} tok/s"
            f"   ratio {result.ratio:5.2f}"
        )
    waste = _waste(llm)
    print(f"KV cache: {waste:.1%} of the slots held by running requests had no token in them")
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(_record(results, waste, options.threads), indent=2) + "\n")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def _compare(case: Case, llm: LLM, peer: PreTrainedModel, runs: int) -> Result:
    """A warm-up, then both in turn, so that a slow moment of the machine falls on both."""
    vocab_size = llm.engine.spec.vocab_size
    ours, theirs = [], []
    for run in range(runs + 1):
        prompts = case.prompts(run, vocab_size)
        ours.append(_rate(case, prompts, lambda p, n: _generate_ours(llm, p, n)))
        theirs.append(_rate(case, prompts, lambda p, n: _generate_theirs(peer, p, n)))
    return Result(case.name, statistics.median(ours[1:]), statistics.median(theirs[1:]))


def _rate(case: Case, prompts: Prompts, generate: Callable[[Prompts, int], None]) -> float:
    """Tokens a second. A decode is timed as the whole minus a run that stops after the first token."""
    spent = _time(lambda: generate(prompts, case.num_new))
    if case.num_new > 1:
        spent -= _time(lambda: generate([prompt[::-1] for prompt in prompts], 1))
    return case.num_counted / spent


def _time(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _generate_ours(llm: LLM, prompts: Prompts, num_new: int) -> None:
    llm.engine.drop_prefix_cache()
    llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=num_new, ignore_eos=True))


def _generate_theirs(peer: PreTrainedModel, prompts: Prompts, num_new: int) -> None:
    ids = torch.tensor(prompts)
    with torch.inference_mode():
        peer.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=num_new,
            min_new_tokens=num_new,
            pad_token_id=0,
        )


def _waste(llm: LLM) -> float:
    """Mean share of held slots without a token, over the steps of a batch of uneven prompts."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 200, (32,), generator=generator).tolist()
    step, shares = llm.engine.step, []

    def measured_step() -> Sequence[object]:
        deltas = step()
        stats = llm.engine.stats()
        held = (stats.num_blocks - stats.num_free_blocks) * llm.engine.config.block_size
        if held:
            shares.append(stats.num_waste_slots / held)
        return deltas

    llm.engine.step = measured_step  # type: ignore[method-assign, assignment]
    llm.generate([[7 + i] * n for i, n in enumerate(lengths)], SamplingParams(max_tokens=32, seed=0, ignore_eos=True))
    llm.engine.step = step  # type: ignore[method-assign]
    return statistics.mean(shares)


def _record(results: Sequence[Result], waste: float, threads: int) -> dict[str, object]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "command": " ".join(["python -m benchmarks.offline", *sys.argv[1:]]),
        "commit": commit,
        "cpu": _cpu_name(),
        "threads": threads,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "results": [{**asdict(result), "ratio": result.ratio} for result in results],
        "kv_waste": waste,
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
