"""The commands `train`, `sweep` and `bench`."""
