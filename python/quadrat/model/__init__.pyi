from quadrat.model.remove_padding import RemovedPadding as RemovedPadding
