from quadrat.batching.any_loop import by_length as by_length
from quadrat.batching.any_loop import map_by_length as map_by_length
from quadrat.batching.dataset_packing import pack_dataset as pack_dataset
from quadrat.batching.packing import plan_packs as plan_packs
from quadrat.batching.samplers import LengthGroupedSampler as LengthGroupedSampler
from quadrat.batching.shapes import ShapePlan as ShapePlan
from quadrat.batching.shapes import plan_shapes as plan_shapes
from quadrat.collators.fixed_shapes import FixedShapes as FixedShapes
