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
        is_known = given is not None and any(given.values())
        if is_known or self.batch_shape is None or not self.built:
            return given
        return {"input_shape": self.batch_shape}

    @_build_shapes_dict.setter
    def _build_shapes_dict(self, value):
        # Not an attribute of Keras, which would wrap the dict. It may be empty, for a `build`
        # without a shape, and files of models hold it.
        self.__dict__["_given_shapes"] = None if value is None else dict(value)

    @property
    def _called(self):
        return self.__dict__.get("_was_called", False) or self.built

    @_called.setter
    def _called(self, value):
        self.__dict__["_was_called"] = value
