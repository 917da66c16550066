"""Families of models: the only room that knows how a model is trained."""
