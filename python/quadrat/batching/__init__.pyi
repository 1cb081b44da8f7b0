from quadrat.batching.dataset_packing import pack_dataset as pack_dataset
from quadrat.batching.shapes import FixedShapes as FixedShapes
from quadrat.batching.shapes import ShapePlan as ShapePlan
from quadrat.batching.shapes import plan_shapes as plan_shapes
