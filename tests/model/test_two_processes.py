"""Two processes train the same without padding, under DDP and FSDP 2, and with TRL's online trainers."""

import pytest

from support.isolated import in_two
from support.padded_trainings import differences
from support.two_processes import groups, sharded

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "way",
    ["DDP, removed first", "DDP, wrapped then", "FSDP 2, removed first", "FSDP 2, sharded then", "FSDP 2, other forms"],
)
def test_two_processes(way, tmp_path):
    saved = in_two(sharded, tmp_path, way)
    for result in saved:
        assert max(differences(result["expected"], result["got"])) <= 1e-12
        assert result["removed"]
    assert max(differences(saved[0]["got"], saved[1]["got"])) == 0


@pytest.mark.parametrize("name", ["GRPO", "RLOO"])
def test_groups_of_prompts(name, tmp_path):
    """Each process keeps its rows: it puts its own of one prompt together."""
    pytest.importorskip("trl", reason="TRL is not installed")
    saved = in_two(groups, tmp_path, name)
    for result in saved:
        assert max(differences(result["expected"], result["got"])) <= 1e-7
        assert result["shared"] > 0
        assert "the rows of one prompt together" in result["says"]
    assert max(differences(saved[0]["got"], saved[1]["got"])) == 0
