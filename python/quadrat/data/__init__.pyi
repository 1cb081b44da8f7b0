from quadrat.data.batched import BatchedDataset as BatchedDataset
from quadrat.data.streams import PackedStream as PackedStream
from quadrat.integration.patch_datasets import patch_datasets as patch_datasets
