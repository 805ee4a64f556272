"""Tests of `iha_theory.attention.fused`: the routes against attention by definition."""
