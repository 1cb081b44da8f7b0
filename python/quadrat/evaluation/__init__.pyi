from quadrat.evaluation.containers import EvalLoopContainer as EvalLoopContainer
from quadrat.evaluation.containers import without_padding as without_padding
from quadrat.evaluation.gatherer import DistributedTensorGatherer as DistributedTensorGatherer
from quadrat.ops.concat import concat_padded as concat_padded
