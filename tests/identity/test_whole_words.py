"""Whole-word masking by offsets (`whole_word_mask=True`): as the installed transformers, and where that fails."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from support.masking import make_masking_tokenizer, seed_everything
from identity.test_language_modeling import assert_identical_draws
