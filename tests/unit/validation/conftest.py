"""A sound whole model, for tests that spoil it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.validation.models import model_folder, upload_of
from tests.unit.validation.uploads import Upload


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture
def upload(bert: Path) -> Upload:
    """A sound fine-tune of a tiny BERT."""
    return upload_of(bert)
