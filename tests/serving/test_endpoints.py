"""Endpoints check what they are given, and are those of whatever the model is."""

import json
import resource
import subprocess
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.models.base.protocols import CapsuleClassifier
from keras_capsule_poe.serving import export_saved_model, newest_version, versions


@pytest.fixture(scope="module")
def product(small_product):
    return small_product()


@pytest.fixture(scope="module")
def exported(product, tmp_path_factory):
    """Where a model was exported to, and what its codes were traced with meanwhile."""
    traced = []
    route = type(product)._code

    def count(self, *arguments):
        traced.append(arguments)
        return route(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(product), "_code", count)
        folder = tmp_path_factory.mktemp("models")
        return export_saved_model(product, folder, {"data": "noise"}), traced


@pytest.fixture(scope="module")
def version(exported):
    return exported[0]


@pytest.fixture(scope="module")
def loaded(version):
    return tf.saved_model.load(str(version))


@pytest.mark.some(2)
def test_every_argument_of_every_endpoint_is_checked(version, refused):
    found = refused(version)
    assert found["sample_capsule"] == {"capsule", "n"} and found["sample_joint"] == {"n"}
    assert found["decode"] == {"capsules"} and found["encode"] == {"images"}


def test_what_is_shared_is_traced_once(product, exported):
    assert len(exported[1]) == 1
    # And the model is as it was.
    assert "code" not in vars(product) and "render" not in vars(product)


def test_arguments_out_of_range_are_named(loaded, random_pixels):
    signature = loaded.signatures["sample_capsule"]
    for capsule in (-1, 5, 99):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"5 capsules, from 0.*{capsule}"):
            loaded.sample_capsule(capsule, 2, 0)
        with pytest.raises(tf.errors.InvalidArgumentError, match="5 capsules"):
            signature(capsule=tf.constant(capsule), n=tf.constant(2), seed=tf.constant(0))
    for sample in (loaded.sample, loaded.sample_joint):
        with pytest.raises(tf.errors.InvalidArgumentError, match="`n` must be at least zero.*-2"):
            sample(-2, 0)
    wanted = r"pixels in \[0, 1\], bytes divided"
    for worst in (255.0, 1.01, -0.01, np.nan):
        images = random_pixels(3)
        images[1, 2, 3, 0] = worst
        for endpoint in (loaded.encode, loaded.reconstruct, loaded.free_energy):
            with pytest.raises(tf.errors.InvalidArgumentError, match=wanted):
                endpoint(images)
    # Rounding is not refused.
    loaded.encode(np.full((2, 20, 20, 1), 1.0000001, "float32"))


def test_threads_are_answered_alike(loaded, random_pixels):
    images = [random_pixels(2, seed=seed) for seed in range(8)]

    def asked(x):
        return loaded.encode(x)["capsules"].numpy(), loaded.sample(3, 7)["images"].numpy()

    wanted = [asked(x) for x in images]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for found, alone in zip(pool.map(asked, images), wanted, strict=True):
                for a, b in zip(found, alone):
                    # Float32, added up by other threads.
                    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_empty_batches_have_empty_results(loaded):
    empty = {
        "encode": loaded.encode(np.zeros((0, 20, 20, 1), "float32")),
        "reconstruct": loaded.reconstruct(np.zeros((0, 20, 20, 1), "float32")),
        "free_energy": loaded.free_energy(np.zeros((0, 20, 20, 1), "float32")),
        "decode": loaded.decode(np.zeros((0, 5, 3), "float32")),
        "sample": loaded.sample(0, 0),
        "sample_capsule": loaded.sample_capsule(0, 0, 0),
    }
    for name, values in empty.items():
        for key, value in values.items():
            assert value.shape[0] == 0, (name, key)
    assert empty["encode"]["capsules"].shape == (0, 5, 3)
    assert empty["reconstruct"]["images"].shape == (0, 20, 20, 1)


class Brightness(CapsuleClassifier, keras.Model):
    """Two classes: dark and bright images."""

    TITLE = "Brightness"
    image_shape = (4, 4, 1)

    def build(self, input_shape=None):
        self.border = self.add_weight(shape=(), initializer="zeros", name="border")
        self.border.assign(0.5)
        self.built = True

    def classify(self, images):
        bright = keras.ops.mean(images, axis=(1, 2, 3))
        probabilities = keras.ops.stack([1 - bright, bright], axis=-1)
        return {
            "probabilities": probabilities,
            "classes": keras.ops.cast(bright > self.border, "int32"),
        }

    def reconstruct(self, images):
        return {"images": keras.ops.ones_like(images) * self.border}


def test_a_classifier_is_exported_by_its_own_table(tmp_path):
    model = Brightness()
    model.build()
    card = {"data": "lamps", "metrics": {"loss": 1.0}}
    version = export_saved_model(model, tmp_path, card)
    loaded = tf.saved_model.load(str(version))
    assert set(loaded.signatures) == {"classify", "reconstruct", "serving_default"}
    images = np.stack([np.zeros((4, 4, 1)), np.ones((4, 4, 1))]).astype("float32")
    np.testing.assert_array_equal(loaded.classify(images)["classes"], [0, 1])
    np.testing.assert_array_equal(loaded.reconstruct(images)["images"], np.full((2, 4, 4, 1), 0.5))
    written = json.loads((version / "model_card.json").read_text())
    assert written["model"] == "Brightness" and written["image_shape"] == [4, 4, 1]
    assert written["endpoints"] == {"classify": ["images"], "reconstruct": ["images"]}
    assert written["data"] == "lamps" and written["packages"]["tensorflow"]


def test_the_files_of_a_version_can_be_checked(tmp_path):
    model = Brightness()
    model.build()
    version = export_saved_model(model, tmp_path, {})
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=version, capture_output=True).returncode == 0
    listed = {line.split()[1] for line in (version / "SHA256SUMS").read_text().splitlines()}
    files = {str(path.relative_to(version)) for path in version.rglob("*") if path.is_file()}
    assert listed == files - {"SHA256SUMS"} and "variables/variables.index" in listed
    (version / "saved_model.pb").write_bytes(b"another")
    assert subprocess.run(check, cwd=version, capture_output=True).returncode == 1


def test_a_full_disk_is_one_line_and_leaves_nothing(product, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**15, limits[1]))
    try:
        with pytest.raises(RunFailed, match=r"Cannot write .*1: [^\n]*(File too large|ile)"):
            export_saved_model(product, tmp_path, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_versions_are_numbers_and_left_overs_go(tmp_path):
    model = Brightness()
    model.build()
    for name in ("²", "notes", "1.5", ".1.0123abcd"):
        (tmp_path / name).mkdir()
    (tmp_path / ".1.0123abcd" / "saved_model.pb").write_text("half")
    assert newest_version(tmp_path) is None
    # Of a user: it counts, so that the next one is newer, but is not called 7.
    (tmp_path / "mine" / "0007").mkdir(parents=True)
    assert newest_version(tmp_path / "mine") is None and versions(tmp_path / "mine") == [7]
    assert export_saved_model(model, tmp_path, {}).name == "1"
    assert not list(tmp_path.glob(".*"))
    (tmp_path / "1" / "stale.txt").write_text("old")
    assert export_saved_model(model, tmp_path, {}).name == "2"
    # One that is written again holds nothing of the one before.
    assert export_saved_model(model, tmp_path, {}, version=1) == tmp_path / "1"
    assert not (tmp_path / "1" / "stale.txt").exists() and versions(tmp_path) == [1, 2]


def test_arguments_have_names(loaded, random_pixels):
    images = random_pixels(2)
    for key, value in loaded.encode(images=images).items():
        np.testing.assert_array_equal(value, loaded.encode(images)[key])
    assert loaded.sample(n=3, seed=0)["images"].shape[0] == 3
    assert loaded.sample_capsule(capsule=1, n=2, seed=0)["images"].shape[0] == 2
    assert loaded.decode(capsules=np.zeros((2, 5, 3), "float32"))["images"].shape[0] == 2


def test_bytes_and_doubles_are_pixels(loaded):
    images = np.random.default_rng(0).integers(0, 256, (3, 20, 20, 1), dtype="uint8")
    wanted = loaded.encode((images / 255).astype("float32"))["capsules"]
    for given in (images, images / 255):
        np.testing.assert_allclose(loaded.encode(given)["capsules"], wanted, atol=1e-5)


def test_wrong_arrays_are_one_line_that_names_them(loaded):
    cases = ((2, 20, 21, 1), "float32"), ((20, 20), "float32"), ((2, 20, 20, 3), "uint8")
    for shape, dtype in cases:
        received = " ".join(map(str, shape))
        wanted = rf"`images` must have shape \(N, 20, 20, 1\).*{received}"
        with pytest.raises(tf.errors.InvalidArgumentError, match=wanted) as caught:
            loaded.encode(images=np.zeros(shape, dtype))
        # No array, no kernel and no line of code.
        assert len(str(caught.value)) < 500 and "File " not in str(caught.value)
    # Nor is an array of another kind printed.
    for images in (np.zeros((2, 20, 20, 1), "int64"), np.array([["a"]])):
        with pytest.raises(ValueError, match="dtype=(int64|string)") as caught:
            loaded.encode(images=images)
        assert "[[" not in str(caught.value) and "float32" in str(caught.value)


def test_what_servers_call_by_default_is_the_first_endpoint(loaded, version, random_pixels):
    images = random_pixels(2)
    served = loaded.signatures["serving_default"](images=tf.constant(images))
    np.testing.assert_array_equal(served["capsules"], loaded.encode(images)["capsules"])
    for named in ({}, {"call_endpoint": "serving_default"}):
        layer = keras.layers.TFSMLayer(str(version), **named)
        np.testing.assert_array_equal(layer(images)["capsules"], served["capsules"])


class Careful(Brightness):
    """Model that takes a few images at once."""

    def classify(self, images):
        few = tf.debugging.assert_less_equal(tf.shape(images)[0], 64)
        with tf.control_dependencies([few]):
            return super().classify(images)


def test_endpoints_work_in_blocks(tmp_path):
    model = Careful()
    model.build()
    loaded = tf.saved_model.load(str(export_saved_model(model, tmp_path, {})))
    for n in (0, 1, 64, 65, 1000):
        images = np.random.default_rng(0).uniform(size=(n, 4, 4, 1)).astype("float32")
        mean = images.mean(axis=(1, 2, 3))
        found = loaded.classify(images)["probabilities"]
        np.testing.assert_allclose(found, np.stack([1 - mean, mean], 1), atol=1e-6)


def test_the_readme_of_a_version_tells_how_to_call_it(version):
    text = (version / "README.md").read_text()
    for words in (
        "`encode`", "`images` float32 (N, 20, 20, 1): pixels in [0, 1]", "nats",
        'tf.saved_model.load(".")', "tensorflow/serving", '"signature_name": "encode"',
    ):  # fmt: skip
        assert words in text
    # The example for Python runs.
    code = text.split("```python\n")[1].split("```")[0].replace('"."', repr(str(version)))
    exec(code, {"images": np.zeros((1, 20, 20, 1), "float32")})


@pytest.mark.long
def test_endpoints_compile_under_xla(loaded, random_pixels):
    images = tf.constant(random_pixels(65))
    for name in ("encode", "reconstruct", "free_energy"):
        endpoint = loaded.signatures[name]
        compiled = tf.function(lambda x, endpoint=endpoint: endpoint(images=x), jit_compile=True)
        for key, value in endpoint(images=images).items():
            np.testing.assert_allclose(compiled(images)[key], value, atol=1e-4)
