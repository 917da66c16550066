"""Export of models that Keras does not know the input shape of."""


class Exportable:
    """Mixin for a `keras.Model` that `export` and converters take as soon as it is built.

    Keras reads the input shape from the arguments of `build`, which may be missing here, and takes
    a model that was only trained for one that was never called. A subclass whose `build` needs no
    shape defines `batch_shape`.
    """

    batch_shape = None

    @property
    def _build_shapes_dict(self):
        given = self.__dict__.get("_given_shapes")
        if given or self.batch_shape is None or not self.built:
            return given
        return {"input_shape": self.batch_shape}

    @_build_shapes_dict.setter
    def _build_shapes_dict(self, value):
        # Not tracked by Keras: it would wrap the dict.
        shapes = {name: tuple(shape) for name, shape in (value or {}).items() if shape}
        self.__dict__["_given_shapes"] = shapes or None

    @property
    def _called(self):
        return self.__dict__.get("_was_called", False) or self.built

    @_called.setter
    def _called(self, value):
        self.__dict__["_was_called"] = value
