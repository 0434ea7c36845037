from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.tiny_models import write_tiny_mixtral

# Tests share two cores with Ray and each other: threads that spin for one another cost more than they bring.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_mixtral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_mixtral(tmp_path_factory.mktemp("tiny-mixtral"))
