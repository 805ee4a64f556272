"""The judgement of each statement, made once for all tests."""

from functools import cache

import pytest

from constructions.ledger import judge, select


@pytest.fixture(scope="session")
def judged():
    """judged(id): a statement's judgement."""
    return cache(lambda name: judge(*select([name])))
