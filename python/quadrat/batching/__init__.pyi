from quadrat.batching.any_loop import by_length as by_length
from quadrat.batching.any_loop import map_by_length as map_by_length
from quadrat.batching.budget import AttentionCost as AttentionCost
from quadrat.batching.packing import plan_packs as plan_packs
from quadrat.batching.samplers import LengthGroupedSampler as LengthGroupedSampler
