"""One thread: tensors here are tiny, and on a busy machine threads that wait for each other take fifty times longer."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
