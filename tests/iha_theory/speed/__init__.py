"""Tests of `iha_theory.speed`."""
