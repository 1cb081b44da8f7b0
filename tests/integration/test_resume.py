"""Runs that stop, or are killed, and go on: each row once, in the batches of a run that was not interrupted."""

import functools
import json
import os
import random
import signal
import tempfile

import pytest
import torch
from transformers.trainer_utils import get_last_checkpoint

import quadrat
from support.isolated import in_two
from support.resumed import ROWS, STREAMS, Counting, Plain, Recording, of_datasets, train
from support.two_processes import resumed

PLAIN = {"dataloader_num_workers": 0}
WORKERS = {"dataloader_num_workers": 2}
ACCUMULATED = {"gradient_accumulation_steps": 2, "max_steps": 20}
PERSISTENT = {**WORKERS, "dataloader_persistent_workers": True, "dataloader_prefetch_factor": 3}
MAP_STYLE = {"gradient_accumulation_steps": 2}


@functools.cache
def whole_run(stream, *options):
    with tempfile.TemporaryDirectory() as folder:
        return train(folder, stream, **dict(options))


def whole_of(stream, options):
    return whole_run(stream, *options.items())


def assert_goes_on(folder, stream, stops, options, **resumed):
    whole = whole_of(stream, options)
    for stop in stops:
        first = train(folder / str(stop), stream, stop=stop, **options)
        rest = train(folder / str(stop), stream, resume=True, **options, **resumed)
        assert first.record + rest.record == whole.record
        assert first.epochs + rest.epochs == whole.epochs
    return rest


@pytest.mark.parametrize(
    ("stream", "stops", "options"),
    [
        ("batches", [10, 27], PLAIN),
        ("packs", [7], PERSISTENT | ACCUMULATED),
        ("3 shards", [21], WORKERS),
        ("no state", [19], PLAIN),
        ("concatenated", [11], WORKERS),  # each has no shard of one part
    ],
)
def test_goes_on(tmp_path, stream, stops, options):
    assert_goes_on(tmp_path, stream, stops, options)


def test_batches_by_tokens_of_a_dataset_go_on_in_the_first_and_third_epoch(tmp_path):
    assert_goes_on(tmp_path, "rows by tokens", [3, 23], {})
    epochs = dict(whole_of("rows by tokens", {}).epochs)
    assert (int(epochs[3]), int(epochs[23])) == (0, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [PLAIN, WORKERS, ACCUMULATED, PERSISTENT], ids=["", "workers", "accumulated", "live"]
)
@pytest.mark.parametrize("stream", ["batches of a list", "batches", "packs", "1 shard", "mapped", "buffer", "no state"])
def test_goes_on_from_any_stream(tmp_path, stream, options):
    assert_goes_on(tmp_path, stream, [4, 13, 19], options)


@pytest.mark.parametrize("told", [False, True])
def test_ignore_data_skip_makes_no_difference(tmp_path, told):
    """The first stop is at the end of an epoch."""
    assert_goes_on(tmp_path, "3 shards", [15, 23], PLAIN, ignore_data_skip=told)


def test_a_checkpoint_at_the_end_of_an_epoch(tmp_path):
    whole = train(tmp_path, "batches", save_strategy="epoch")
    ends = [int(path.name.partition("-")[2]) for path in tmp_path.glob("checkpoint-*")]
    assert len(ends) >= 3
    for end in ends[:3]:
        rest = train(tmp_path / "rest", "batches", resume=str(tmp_path / f"checkpoint-{end}"))
        assert rest.record == [entry for entry in whole.record if entry[0] >= end]


def test_rows_are_not_read_again(tmp_path):
    whole = train(tmp_path / "whole", Counting())
    train(tmp_path, Counting(), stop=32)
    stream = Counting()
    rest = train(tmp_path, stream, resume=True, max_steps=36)
    assert rest.record == whole.record[32:36]
    assert stream.read <= 4 + 1, "a loader of accelerate reads one batch ahead"


@pytest.mark.slow
def test_two_processes(tmp_path):
    in_two(resumed, tmp_path)


@pytest.fixture
def changed(tmp_path):
    """Resumes a run from a checkpoint with other contents."""
    train(tmp_path, "3 shards", stop=17)
    path = tmp_path / "checkpoint-17" / "trainer_state.json"

    def resumed(change=None, stream="3 shards", **options):
        state = json.loads(path.read_text())
        if change is not None:
            change(state["stateful_callbacks"])
        path.write_text(json.dumps(state))
        return train(tmp_path, stream, resume=True, **options)

    return resumed


def test_another_run_is_refused(changed):
    with pytest.raises(ValueError, match="does not fit: num_workers is 2 here and 1 in the checkpoint"):
        changed(dataloader_num_workers=2)
    with pytest.raises(ValueError, match=r"does not fit: dataset is 'IterableDataset .* in the checkpoint"):
        changed(stream=of_datasets(3).take(40))
    with pytest.raises(ValueError, match="dataset is 'BatchedStream' here and 'IterableDataset"):
        changed(stream="batches")
    with pytest.raises(ValueError, match="does not fit: world_size is 1 here and 2 in the checkpoint"):
        changed(lambda stored: stored["SetEpochCallback: stream"]["for"].update(world_size=2))


def test_another_seed_is_refused(tmp_path):
    train(tmp_path, "buffer", stop=3)
    with pytest.raises(ValueError, match="dataset is"):
        train(tmp_path, of_datasets(3).shuffle(seed=4, buffer_size=10), resume=True)
    train(tmp_path / "batches", "batches", stop=3)
    with pytest.raises(ValueError, match="the state is from another stream: seed is 1 here and 0 in the state"):
        train(tmp_path / "batches", quadrat.BatchedStream(of_datasets(4), 40, window=12, seed=1), resume=True)


def test_a_checkpoint_that_is_not_whole_is_refused(changed):
    with pytest.raises(ValueError, match="the run ended while it saved it"):
        changed(lambda stored: stored["SetEpochCallback: stream"]["positions"].append(None))


def test_checkpoints_of_runs_without_the_callback(tmp_path, caplog):
    whole = whole_of("3 shards", PLAIN)
    for stop in (6, 23):
        train(tmp_path / str(stop), "3 shards", stop=stop, callback=None)
    rest = train(tmp_path / "6", "3 shards", resume=True, stop=20)
    assert rest.record == whole.record[6:20]
    assert "batches are read and skipped" in caplog.text
    later = train(tmp_path / "later", "3 shards", resume=str(tmp_path / "6" / "checkpoint-20"))
    assert later.record == whole.record[20:]
    with pytest.raises(ValueError, match="without SetEpochCallback, in epoch 1 of a stream"):
        train(tmp_path / "23", "3 shards", resume=True)
    anew = train(tmp_path / "23", "3 shards", resume=True, ignore_data_skip=True)
    assert [rows for _, rows in anew.record] == [rows for _, rows in whole.record[15:32]]


STATES = {
    "tuples": lambda at: {"at": (at, 0)},
    "numbers as names": lambda at: {"rows": {0: at} if at > 5 else {}},
}


@pytest.mark.parametrize("state", STATES)
def test_states_that_a_checkpoint_cannot_keep(tmp_path, state):
    class Odd(Counting):
        def state_dict(self):
            return STATES[state](self.at)

    with pytest.raises(TypeError, match="state_dict of Odd cannot be stored in a checkpoint"):
        train(tmp_path, Odd())


@pytest.mark.parametrize("make", [lambda: of_datasets(3), lambda: quadrat.BatchedStream(of_datasets(3), 40), Plain])
def test_an_evaluation_on_the_same_stream(tmp_path, make):
    """Its epoch and its place are not those of training."""
    options = {"eval_strategy": "steps", "eval_steps": 2, "prediction_loss_only": True, "max_steps": 20}
    options["per_device_train_batch_size"] = 1 if isinstance(make(), quadrat.BatchedStream) else 3
    stream = make()
    whole = train(tmp_path / "whole", stream, evaluated=stream, **options)
    for stop in (4, 17):
        stream, again = make(), make()
        first = train(tmp_path / str(stop), stream, evaluated=stream, stop=stop, **options)
        rest = train(tmp_path / str(stop), again, evaluated=again, resume=True, **options)
        trained = [entry for entry in first.record + rest.record if entry in whole.record]
        assert trained == first.record + rest.record
        assert rest.record == whole.record[len(whole.record) - len(rest.record) :]
        assert first.epochs + rest.epochs == whole.epochs


class OneLoader(Recording):
    """A Trainer that trains on one loader, however often."""

    def get_train_dataloader(self):
        self.__dict__.setdefault("loader", super().get_train_dataloader())
        return self.loader


@pytest.mark.parametrize("options", [PLAIN, PERSISTENT], ids=["", "live"])
def test_a_stream_that_trains_twice(tmp_path, options):
    """In one process: what was resumed begins anew when a run is not resumed."""
    settings = {**options, "per_device_train_batch_size": 3, "max_steps": 18}
    stream = of_datasets(2)
    whole = train(tmp_path / "whole", of_datasets(2), **settings).record
    train(tmp_path, stream, stop=5, **settings)
    rest = train(tmp_path, stream, resume=True, trainer=OneLoader, **settings)
    assert rest.record == whole[5:]
    for resume, expected in ((str(tmp_path / "checkpoint-5"), whole[5:]), (False, whole)):
        rest.record.clear()
        rest.train(resume_from_checkpoint=resume)
        assert rest.record == expected
    assert train(tmp_path / "anew", stream, **settings).record == whole


def test_a_run_that_went_on_without_the_callback_is_refused(tmp_path):
    train(tmp_path, "3 shards", stop=3)
    train(tmp_path, "3 shards", resume=True, stop=5, callback=None)
    with pytest.raises(ValueError, match="went on without SetEpochCallback after step 3, and its place"):
        train(tmp_path, "3 shards", resume=True)


@pytest.mark.parametrize("stream", ["rows", "3 shards"])
def test_restored_callbacks_keep_their_collator(tmp_path, stream):
    """Trainer makes callbacks anew of what a checkpoint stores under their names."""

    class Told:
        def __init__(self):
            self.epochs = []
            self.set_epoch = self.epochs.append

    for stop in (17, 20):
        told = Told()
        options = {"restore_callback_states_from_checkpoint": True, "per_device_train_batch_size": 3, "max_steps": 20}
        callback = functools.partial(quadrat.SetEpochCallback, told)
        data = ROWS if stream == "rows" else stream
        train(tmp_path, data, stop=stop, callback=callback, resume=stop == 20, data_seed=0, **options)
        assert told.epochs == ([1] if stop == 20 else [0, 1])


class Sized(Plain):
    def __init__(self, length=45):
        super().__init__()
        self.length = length

    def __len__(self):
        return self.length


STREAMS["sized"] = Sized


def test_a_stream_with_a_length(tmp_path):
    """By which Trainer counts epochs."""
    options = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 5,
        "max_steps": -1,
        "num_train_epochs": 3,
    }
    assert_goes_on(tmp_path, "sized", [2, 3, 5], options)
    with pytest.raises(
        ValueError, match=r"Trainer would begin after batch 0 of epoch 1, .* was after batch 10 of epoch 1"
    ):
        train(tmp_path, Sized(), resume=str(tmp_path / "5" / "checkpoint-5"), ignore_data_skip=True, **options)
    train(tmp_path, Sized(70), stop=4, **options)
    with pytest.raises(ValueError, match=r"by the length of Sized, but it was after batch .*its len must be right"):
        train(tmp_path, Sized(70), resume=True, **options)


def test_workers_that_do_not_know_the_epoch(tmp_path):
    options = {**PERSISTENT, "max_steps": 18}
    train(tmp_path, "no state", stop=16, **options)
    with pytest.raises(
        ValueError, match="epoch of Plain is not known in workers that live on, at the start of epoch 1"
    ):
        train(tmp_path, "no state", resume=True, **options)


class Peeks(quadrat.SetEpochCallback):
    """Reads the training loader besides training, after the third step."""

    def on_step_end(self, args, state, control, **kwargs):
        super().on_step_end(args, state, control, **kwargs)
        if state.global_step == 3:
            next(iter(kwargs["train_dataloader"]))


class PeeksFirst(quadrat.SetEpochCallback):
    def on_epoch_begin(self, *args, **kwargs):
        super().on_epoch_begin(*args, **kwargs)
        next(iter(kwargs["train_dataloader"]))


@pytest.mark.parametrize("callback", [Peeks, PeeksFirst])
def test_a_loader_that_is_read_twice(tmp_path, caplog, callback):
    """Training is as without, and a checkpoint of that epoch is refused; later ones are not."""
    trainer = train(tmp_path, "3 shards", stop=7, callback=callback)
    assert trainer.record == whole_of("3 shards", {}).record[:7]
    assert len([record for record in caplog.records if "read a second time in an epoch" in record.message]) == 1
    with pytest.raises(ValueError, match="had read the training loader a second time in this epoch"):
        train(tmp_path, "3 shards", resume=True)
    assert_goes_on(tmp_path, "3 shards", [21], {"callback": Peeks})


def test_a_loader_that_is_read_before_a_resumed_training(tmp_path):
    train(tmp_path, "3 shards", stop=7)
    with pytest.raises(RuntimeError, match="the training loader was read before training"):
        train(tmp_path, "3 shards", resume=True, callback=PeeksFirst)


EVENTS = ["on_step_begin", "on_step_end", "on_substep_end", "on_save", "on_epoch_end"]
KILLED = [
    ("batches", PERSISTENT | ACCUMULATED),
    ("packs", WORKERS),
    ("3 shards", ACCUMULATED),
    ("rows by tokens", MAP_STYLE),
    ("mapped", WORKERS | ACCUMULATED),
    ("buffer", PLAIN),
]


def in_a_fork(call):
    """The status of a process that makes this call."""
    child = os.fork()
    if not child:
        try:
            torch.set_num_threads(1)
            call()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_killed(tmp_path, number):
    """Twice, at random events, and then not any more. The file has what each process trained on."""
    draw = random.Random(1_000 + number)
    stream, options = KILLED[number % len(KILLED)]
    whole = whole_of(stream, options)
    steps = whole.epochs[-1][0]
    kills = sorted(draw.sample(range(1, steps), 2))
    settings = {**options, "save_steps": draw.randint(1, 4)}
    expected, start = [], 0
    for kill in [(draw.choice(EVENTS), step) for step in kills] + [None]:
        checkpoint = get_last_checkpoint(str(tmp_path)) or False
        start = int(checkpoint.rpartition("-")[2]) if checkpoint else 0
        if start == steps:  # a Trainer that goes on from its last step makes one more
            break
        run = functools.partial(train, tmp_path, stream, kill=kill, resume=checkpoint, **settings)
        assert in_a_fork(run) in (0, int(signal.SIGKILL)), (stream, settings, kill)
        expected = [entry for entry in expected if entry[0] < start]
        expected += list(map(json.loads, (tmp_path / "said").read_text().splitlines()))
        (tmp_path / "said").unlink()
    assert expected == whole.record, (stream, settings, kills)
