"""`batch_by_tokens` of a DataLoader, and of those that a script makes under `quadrat run`."""

import itertools

import datasets
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, RandomSampler

import quadrat
from support.command import PYTHON, RUN, TESTS, ran, reported
from support.strategies import make_tokenizer
from support.streams import LENGTHS as SOME

LENGTHS = [1 + length for length in SOME]
SCRIPT = TESTS / "support" / "loader_in_two.py"


def rows_of(lengths):
    return [{"input_ids": [5] * length, "number": number} for number, length in enumerate(lengths)]


def loader_of(lengths, cls=DataLoader, rows=None, **options):
    collate = quadrat.DataCollatorWithPadding(make_tokenizer())
    arguments = {"batch_size": 4, "shuffle": True, "collate_fn": collate, **options}
    return cls(rows_of(lengths) if rows is None else rows, **arguments)


def numbers_of(loader):
    return [batch["number"].tolist() for batch in loader]


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    size=st.integers(1, 6),
    budget=st.none() | st.integers(40, 200),
    seed=st.integers(0, 2**63),
    has_generator=st.booleans(),
)
def test_each_row_once_in_each_pass(lengths, size, budget, seed, has_generator):
    torch.manual_seed(0 if has_generator else seed)
    generator = torch.Generator().manual_seed(seed) if has_generator else None
    before = loader_of(lengths, batch_size=size, generator=generator)
    loader = quadrat.batch_by_tokens(before, "auto" if budget is None else budget)
    assert loader.dataset is before.dataset
    if budget is None and (len(set(lengths)) == 1 or size == 1):
        assert loader is before
        return
    passes = [list(loader) for _ in range(2)]
    for batches in passes:
        assert sorted(number for batch in batches for number in batch["number"].tolist()) == [*range(len(lengths))]
        assert len(batches) == len(loader)
        assert all(batch["input_ids"].numel() <= loader.batch_sampler.max_tokens for batch in batches)
    again = quadrat.batch_by_tokens(before, "auto" if budget is None else budget)
    assert [numbers_of(again) for _ in range(2)] == [
        [batch["number"].tolist() for batch in batches] for batches in passes
    ]


def test_passes_are_of_other_epochs():
    loader = quadrat.batch_by_tokens(loader_of(LENGTHS), 128)
    passes = [numbers_of(loader) for _ in range(3)]
    assert passes[0] != passes[1] != passes[2]
    loader.batch_sampler.set_epoch(1)
    assert numbers_of(loader) == passes[1]
    assert numbers_of(loader) == passes[2]


def test_options_are_kept():
    noted = torch.zeros(2).share_memory_()
    options = {
        "num_workers": 2,
        "worker_init_fn": lambda worker: noted[worker].fill_(1),
        "generator": torch.Generator().manual_seed(7),
        "prefetch_factor": 3,
        "persistent_workers": True,
        "timeout": 60.0,
        "multiprocessing_context": "fork",
    }
    before = loader_of(LENGTHS, **options)
    loader = quadrat.batch_by_tokens(before, 128)
    for name in ("num_workers", "worker_init_fn", "generator", "prefetch_factor", "persistent_workers", "timeout"):
        assert getattr(loader, name) == getattr(before, name)
    assert loader.multiprocessing_context.get_start_method() == "fork"
    assert sorted(itertools.chain(*numbers_of(loader))) == [*range(len(LENGTHS))]
    assert noted.tolist() == [1, 1]


def test_collators_of_transformers_are_compiled():
    import transformers

    loader = quadrat.batch_by_tokens(
        loader_of(LENGTHS, collate_fn=transformers.DataCollatorWithPadding(make_tokenizer()))
    )
    assert type(loader.collate_fn) is quadrat.DataCollatorWithPadding


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's call
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_goes_on(workers):
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")

    def make():
        return quadrat.batch_by_tokens(loader_of(LENGTHS, stateful.StatefulDataLoader, num_workers=workers), 128)

    whole = make()
    passes = [numbers_of(whole) for _ in range(2)]
    loader = make()
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    again = make()
    again.load_state_dict(loader.state_dict())
    assert numbers_of(again) == passes[0][3:]
    assert numbers_of(again) == passes[1]


STREAM = datasets.Dataset.from_list(rows_of(LENGTHS)).to_iterable_dataset()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"shuffle": False}, ValueError, "does not shuffle .* quadrat.batching.by_length"),
        ({"batch_size": None, "shuffle": None}, ValueError, "does not shuffle"),
        ({"shuffle": None, "sampler": RandomSampler(LENGTHS, replacement=True)}, ValueError, "more than once"),
        ({"shuffle": None, "sampler": RandomSampler(LENGTHS, num_samples=3)}, ValueError, "some of them"),
        ({"cls": type("Own", (DataLoader,), {})}, TypeError, "Own makes batches .* before accelerator.prepare"),
        ({"rows": STREAM, "shuffle": None}, TypeError, "cannot be indexed by row"),
        ({"rows": [{"a": [1]}] * 5}, ValueError, "no column 'input_ids'"),
    ],
)
def test_what_it_cannot_do(options, error, said):
    with pytest.raises(error, match=said):
        quadrat.batch_by_tokens(loader_of(LENGTHS, **options))


def test_what_it_does_once():
    with pytest.raises(ValueError, match=r"planned already: .* make the loader anew"):
        quadrat.batch_by_tokens(quadrat.batch_by_tokens(loader_of(LENGTHS)))


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_script_without_trainer(tmp_path, processes):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "--no-python"]
    run = [*PYTHON, *torchrun] if processes > 1 else []
    result = ran(tmp_path, [*run, *RUN, "--max-tokens", "auto"], str(SCRIPT), str(tmp_path))
    assert result.returncode == 0, result.stderr
    saved = [torch.load(tmp_path / f"{rank}.pt") for rank in range(processes)]
    for epoch in range(2):
        shares = [epochs[epoch] for epochs, _, _ in saved]
        assert len({len(share) for share in shares}) == 1
        assert sorted(number for share in shares for batch in share for number in batch) == [*range(len(LENGTHS))]
    assert sum(computed for _, computed, _ in saved) < 1.25 * 2 * sum(LENGTHS)
    assert result.stderr.count("steps an epoch") == 1
    assert f"{saved[0][2] // processes:,} steps an epoch" in result.stderr


BROKEN = """
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding
from support.strategies import make_tokenizer

class Rows:
    ready = False
    def __len__(self):
        return 4
    def __getitem__(self, row):
        if not self.ready:
            raise OSError("not there yet")
        return {"input_ids": [5] * (1 + row)}

rows = Rows()
loaders = [DataLoader(rows, batch_size=2, shuffle=True, collate_fn=collate) for collate in (
    DataCollatorWithPadding(make_tokenizer()), list)]
Rows.ready = True
print([len(list(loader)) for loader in loaders])
"""


@pytest.mark.slow
def test_a_loader_that_it_cannot_plan_is_as_before(tmp_path):
    result, _ = reported(tmp_path, BROKEN, options=["--max-tokens", "8"])
    assert result.stdout == "[2, 2]\n"
    assert "batches of a DataLoader are as before: OSError: not there yet" in result.stderr
    assert "batches of a DataLoader are as before: list may pad in its own way" in result.stderr
