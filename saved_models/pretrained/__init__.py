"""Pretrained models, made by `benchmarks/pretrain.py` and loaded by `keras_capsule_poe.load`."""
