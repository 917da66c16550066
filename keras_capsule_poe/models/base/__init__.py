"""Protocols, contrastive training, and stages that several model families share."""
