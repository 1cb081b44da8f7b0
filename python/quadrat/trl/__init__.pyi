from quadrat.integration.patch_trl import patch_trl as patch_trl
from quadrat.trl import dpo as dpo
from quadrat.trl import kto as kto
from quadrat.trl import reward as reward
from quadrat.trl import sft as sft
from quadrat.trl import tpo as tpo
from quadrat.trl.padding import pad as pad
