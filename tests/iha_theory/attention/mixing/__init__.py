"""Tests of `iha_theory.attention.mixing`."""
