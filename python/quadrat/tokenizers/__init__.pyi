from quadrat.integration.patch_transformers import patch_tokenizers as patch_tokenizers
from quadrat.planning.conversion import convert_to_tensors as convert_to_tensors
from quadrat.tokenizers.pad import tokenizer_pad as tokenizer_pad
