from quadrat.check.packing_check import check_packing as check_packing
from quadrat.integration.patch_attention import patch_flash_attn as patch_flash_attn
from quadrat.ops.aligned import align as align
from quadrat.varlen import bert_padding as bert_padding
from quadrat.varlen.block_mask import document_block_mask as document_block_mask
