"""EvalLoopContainer, DistributedTensorGatherer and concat_padded == those of the installed transformers."""

import copy
import functools
import pickle
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import trainer_pt_utils
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.trainer_pt_utils import nested_concat

import quadrat
from support import compare
from support.compare import frozen, picture
from support.nested import Pair, filled, leaves, overwritten, structures

LIBRARIES = st.sampled_from(["pt", "pt", "np"])
PADDING = st.sampled_from([-100, -100, -100, 0, 7, -12345, 2.5, 300, 1e6])


def outcome(call, *arguments):
    """What a call returns, as a picture, or the type of what it raises."""
    kind, result = compare.outcome(lambda inputs: call(*inputs), arguments)
    return kind, picture(result) if kind == "returned" else type(result)


def batches_of(data, *, library=LIBRARIES, rows=None, most=9):
    structure = data.draw(structures(leaves(data.draw(library))))
    return [data.draw(filled(structure, rows)) for _ in range(data.draw(st.integers(1, most)))]


@pytest.mark.parametrize("lengths", [(0, 0, 0, 0), (0, 2, 2, 2), (1, 2, 2, 2), (2, 1, 2, 2), (2, 2, 2, 1)])
def test_lists_of_different_lengths(lengths):
    """`nested_concat` joins as many as the shorter list has."""
    batches = [[torch.ones(2)] * length for length in lengths]
    expected = functools.reduce(nested_concat, batches)
    assert picture(quadrat.evaluation.concat_padded(batches)) == picture(expected)
    container = quadrat.evaluation.EvalLoopContainer()
    for batch in batches:
        container.add(batch)
    assert picture(container.tensors) == picture(expected)


@given(st.data(), PADDING)
def test_concat_padded(data, padding):
    batches = batches_of(data)
    before = picture(batches)
    fold = functools.partial(functools.reduce, lambda first, second: nested_concat(first, second, padding))
    expected = outcome(fold, batches)
    assert outcome(quadrat.evaluation.concat_padded, batches, padding) == expected
    assert outcome(quadrat.evaluation.concat_padded, iter(batches), padding) == expected
    assert picture(batches) == before


def test_outputs_of_models():
    outputs = [TokenClassifierOutput(loss=torch.ones(()), logits=torch.ones(2, width, 3)) for width in (2, 4, 3)]
    expected = functools.reduce(nested_concat, outputs)
    assert type(expected) is TokenClassifierOutput
    assert picture(quadrat.evaluation.concat_padded(outputs)) == picture(expected)


@pytest.mark.parametrize("rows", [2, 3000])
def test_outputs_of_models_in_containers(rows):
    """More than two megabytes of them, too."""
    outputs = [TokenClassifierOutput(logits=torch.ones(rows, width, 3)) for width in (40, 70, 60, 40, 70, 80)]
    ours, reference = (cls() for cls in CONTAINERS)
    for batch in outputs:
        for container in (ours, reference):
            container.add(batch)
    assert picture(ours.get_arrays()) == picture(reference.get_arrays())


@pytest.mark.parametrize("rows", [2, 3000])
@pytest.mark.parametrize("at", range(8))
def test_another_padding_between_batches(rows, at):
    batches = [torch.ones(rows, width, 3) for width in (40, 70, 60, 40, 70, 90, 60, 120)]
    ours, reference = (cls() for cls in CONTAINERS)
    for number, batch in enumerate(batches):
        for container in (ours, reference):
            if number == at:
                container.padding_index = 7
            container.add(batch)
    assert picture(ours.get_arrays()) == picture(reference.get_arrays())


@pytest.mark.parametrize("order", ["C", "F"])
def test_layout_and_padding_that_numpy_casts(order):
    """A float beyond the dtype is cast as `np.full` casts it, and the result lies as the first array does."""
    batches = [np.asarray(np.ones((2, width), np.uint8), order=order) for width in (3, 2, 4, 1, 3)]
    expected = frozen(functools.reduce(functools.partial(nested_concat, padding_index=1e6), batches))
    assert frozen(quadrat.evaluation.concat_padded(batches, 1e6)) == expected


@pytest.mark.parametrize("arrays", [np.zeros((2, 3)), torch.zeros(2, 3), {"a": np.zeros(3)}, "ab", 3])
def test_concat_padded_takes_batches(arrays):
    with pytest.raises(TypeError):
        quadrat.evaluation.concat_padded(arrays)
    with pytest.raises(ValueError, match="no batch"):
        quadrat.evaluation.concat_padded([])


def test_gradients_pass():
    batches = [torch.ones(2, width, requires_grad=True) for width in (2, 4, 3)]
    joined = quadrat.evaluation.concat_padded(batches, 7.0)
    assert torch.equal(joined, functools.reduce(functools.partial(nested_concat, padding_index=7.0), batches))
    (joined * torch.arange(4)).sum().backward()
    for batch in batches:
        assert batch.grad.tolist() == [list(range(batch.shape[1]))] * 2


CONTAINERS = quadrat.evaluation.EvalLoopContainer, trainer_pt_utils.EvalLoopContainer


@given(st.data(), st.booleans() | st.just(True), PADDING)
def test_eval_loop_container(data, concat, padding):
    """The same operations on both, in any order; what was added may be overwritten by whoever gave it."""
    ours, reference = (cls(concat, padding_index=padding) for cls in CONTAINERS)
    assert isinstance(ours, trainer_pt_utils.EvalLoopContainer)
    assert (ours.do_nested_concat, ours.padding_index) == (concat, padding)
    given_batches = []
    for batch in batches_of(data, library=st.sampled_from(["pt", "pt", "pt", "pt", "np"]), most=8):
        theirs = copy.deepcopy(batch)
        assert outcome(ours.add, batch) == outcome(reference.add, theirs)
        given_batches.append((batch, theirs))
        for step in data.draw(st.lists(st.sampled_from(["cpu", "tensors", "arrays", "get", "overwrite"]), max_size=2)):
            if step == "cpu":
                assert outcome(ours.to_cpu_and_numpy) == outcome(reference.to_cpu_and_numpy)
            elif step == "tensors":
                assert picture(ours.tensors) == picture(reference.tensors)
            elif step == "arrays":
                assert picture(ours.arrays) == picture(reference.arrays)
            elif step == "get":
                assert outcome(ours.get_arrays) == outcome(reference.get_arrays)
            else:
                for value in data.draw(st.sampled_from(given_batches)):
                    overwritten(value)
    assert picture(ours.tensors) == picture(reference.tensors)
    assert outcome(ours.get_arrays) == outcome(reference.get_arrays)
    assert outcome(ours.get_arrays) == outcome(reference.get_arrays)


COMPLEX = torch.tensor([[1 + 2j, 3 - 1j]])


@pytest.mark.parametrize("later", [COMPLEX.conj(), COMPLEX.clone().requires_grad_()], ids=["conjugate", "gradient"])
def test_later_batches_whose_bytes_say_less(later):
    ours, reference = (cls() for cls in CONTAINERS)
    for container in (ours, reference):
        for batch in (COMPLEX, later, COMPLEX, later):
            container.add(batch)
    assert torch.equal(ours.tensors, reference.tensors)
    assert ours.tensors.requires_grad == reference.tensors.requires_grad


def test_container_without_batches():
    assert quadrat.evaluation.EvalLoopContainer().get_arrays() is None
    container = quadrat.evaluation.EvalLoopContainer()
    container.add(None)
    container.to_cpu_and_numpy()
    assert container.get_arrays() is container.tensors is container.arrays is None


@pytest.mark.parametrize("how", [copy.deepcopy, lambda container: pickle.loads(pickle.dumps(container))])
def test_copies_of_containers(how):
    container = quadrat.evaluation.EvalLoopContainer(padding_index=-1)
    for width in (2, 3):
        container.add((torch.ones(1, width), {"a": torch.ones(1)}))
        container.to_cpu_and_numpy()
        container.add((torch.ones(1, width), {"a": torch.ones(1)}))
    other = how(container)
    for holder in (container, other):
        holder.add((torch.zeros(1, 4), {"a": torch.zeros(1)}))
    assert picture(other.get_arrays()) == picture(container.get_arrays())


def gatherers(*arguments, **options):
    """Ours and, where transformers has one, the reference."""
    yield quadrat.evaluation.DistributedTensorGatherer(*arguments, **options)
    if hasattr(trainer_pt_utils, "DistributedTensorGatherer"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield trainer_pt_utils.DistributedTensorGatherer(*arguments, **options)


needs_the_reference = pytest.mark.skipif(
    not hasattr(trainer_pt_utils, "DistributedTensorGatherer"),
    reason="transformers 5 has no DistributedTensorGatherer; the second environment compares with 4.57's",
)


@needs_the_reference
@given(st.data(), PADDING, st.integers(1, 3), st.integers(0, 9), st.sampled_from([None, None, 1, 2, 3]))
def test_distributed_tensor_gatherer(data, padding, world_size, samples, multiple):
    kinds = [outcome(list, gatherers(world_size, samples, multiple, padding))[0]]
    assert kinds == ["returned"]
    ours, reference = gatherers(world_size, samples, multiple, padding)
    structure = data.draw(structures(leaves(data.draw(st.sampled_from(["np", "np", "np", "pt"])))))
    for _ in range(data.draw(st.integers(0, 5))):
        rows = data.draw(st.integers(0, 2)) * world_size + data.draw(st.sampled_from([0] * 8 + [1]))
        batch = data.draw(filled(structure, rows))
        theirs = copy.deepcopy(batch)
        expected = outcome(reference.add_arrays, theirs)
        got = outcome(ours.add_arrays, batch)
        if expected == ("raised", AttributeError):  # a mapping, or no array: the reference knows no mappings
            return
        assert got == expected
        if expected[0] == "raised":
            return  # the reference is left in the middle of its work
        if data.draw(st.booleans()):
            overwritten(batch)
            overwritten(theirs)
        if data.draw(st.integers(0, 3)) == 0:
            assert outcome(ours.finalize) == outcome(reference.finalize)
    assert outcome(ours.finalize) == outcome(reference.finalize)


def test_rows_go_to_their_places():
    """The example of the class in transformers 4.x: 16 rows, 3 processes, 2 rows a step."""
    samples, world_size = 16, 3
    gatherer = quadrat.evaluation.DistributedTensorGatherer(world_size, samples, make_multiple_of=2)
    assert (gatherer.total_samples, gatherer.process_length) == (18, 6)
    order = [[0, 1, 6, 7, 12, 13], [2, 3, 8, 9, 14, 15], [4, 5, 10, 11, 0, 1]]
    for step, rows in enumerate(order):
        ids = np.array(rows)
        gatherer.add_arrays({"ids": ids, "wide": (np.repeat(ids[:, None], step + 1, 1),)})
    result = gatherer.finalize()
    assert result["ids"].tolist() == list(range(samples))
    expected = [[row] * (row % 6 // 2 + 1) + [-100] * (2 - row % 6 // 2) for row in range(samples)]
    assert result["wide"][0].tolist() == expected


@pytest.mark.parametrize("padding", [-100, 7])
def test_gatherer_says_what_did_not_come(caplog, padding):
    gatherer = quadrat.evaluation.DistributedTensorGatherer(2, 5, padding_index=padding)
    assert gatherer.finalize() is None
    gatherer.add_arrays(None)
    gatherer.add_arrays(np.array([1, 2]))
    assert gatherer.finalize().tolist() == [1, padding, padding, 2, padding]
    assert "Not all data has been set" in caplog.text
    gatherer.add_arrays(np.array([3, 4]))
    gatherer.add_arrays(np.array([5, 6]))
    caplog.clear()
    assert gatherer.finalize().tolist() == [1, 3, 5, 2, 4]
    assert not caplog.text
    with pytest.raises(ValueError, match="broadcast"):
        gatherer.add_arrays(np.array([7, 8, 9, 10]))
    with pytest.raises(AssertionError, match="multiple of 2, found 3"):
        gatherer.add_arrays(np.zeros(3))


@needs_the_reference
def test_gatherers_of_no_samples_and_numbers():
    for gatherer, numbers in zip(gatherers(1, 0), gatherers(2, 4), strict=True):
        with pytest.raises(TypeError):  # named tuples cannot be made
            gatherer.add_arrays(Pair(np.zeros(1), np.zeros(1)))
        with pytest.raises(ValueError, match="must not be zero"):
            gatherer.add_arrays(np.zeros(1))
        with pytest.raises(IndexError):
            numbers.add_arrays(np.array(1.0))


@pytest.mark.parametrize("looked_at", [False, True])
def test_what_cannot_be_converted_changes_nothing(looked_at):
    container = quadrat.evaluation.EvalLoopContainer()
    for _ in range(2):
        container.add((np.ones((1, 2)), np.ones((1, 2), int)))
    if looked_at:
        assert len(container.tensors) == 2
    with pytest.raises(ValueError, match="invalid literal"):
        container.add((np.ones((1, 2)), np.array([["a", "b", "c"]])))
    assert [array.tolist() for array in container.tensors] == [[[1, 1]] * 2] * 2


@pytest.mark.parametrize("width", [2, 9000])
@pytest.mark.parametrize("every", [1, 3, 100])
def test_batches_that_are_overwritten_after_they_were_added(width, every):
    """Small batches are joined late, and large ones grow: no batch is read again after `add`."""
    containers = [cls() for cls in CONTAINERS]
    for step in range(40):
        for container in containers:
            batch = torch.full((2, width + (step == 30)), float(step)), torch.full((2,), step)
            container.add(batch)
            if step % every == 0:
                container.to_cpu_and_numpy()
            if step:
                for tensor in batch:
                    tensor.zero_()
    arrays, expected = (container.get_arrays() for container in containers)
    assert picture(arrays) == picture(expected)


@pytest.mark.parametrize("batch", [torch.ones(2, 3), (torch.ones(2), [torch.ones(1, 2)]), torch.ones(2).bfloat16()])
def test_one_batch_comes_out_as_it_went_in(batch):
    """As the memory that went in, where NumPy has its dtype."""
    results = []
    for make in CONTAINERS:
        container = make()
        container.add(batch)
        assert container.tensors is batch
        results.append(container.get_arrays())
    assert picture(results[1]) == picture(results[0])
    first, second = (result[0] if isinstance(result, tuple) else result for result in results)
    assert np.shares_memory(first, second) == (getattr(batch, "dtype", torch.float32) == torch.float32)


def test_a_batch_is_added_without_a_look_at_those_before():
    container = quadrat.evaluation.EvalLoopContainer()
    for _ in range(2):
        container.add((torch.ones(8, 2), torch.ones(8)))
    columns = container._tensors.columns
    for _ in range(50):
        container.add((torch.ones(8, 2), torch.ones(8)))
    assert container._tensors.columns is columns
    assert [len(column) for column in columns] == [51, 51]  # the first two are one
