from quadrat.deferred.batch import DeferredBatch as DeferredBatch
