from quadrat.batching.shapes import ShapePlan as ShapePlan
from quadrat.batching.shapes import plan_shapes as plan_shapes
from quadrat.collators.fixed_shapes import FixedShapes as FixedShapes
from quadrat.trl.dataset_packing import pack_dataset as pack_dataset
