"""Joint samples as arrays: chunks of other seeds, put together in order."""

import numpy as np
import pytest

from keras_capsule_poe.generation.sampling import joint_arrays


class Recorder:
    """Samples that say where they come from."""

    def __init__(self):
        self.calls = []

    def sample_joint(self, n, seed):
        self.calls.append((n, seed))
        numbered = np.arange(n, dtype="float32") + 1000 * len(self.calls)
        images = np.broadcast_to(numbered[:, None, None, None], (n, 2, 2, 1))
        return {"images": images, "capsules": np.full((n, 3, 4), len(self.calls), "float32")}


@pytest.mark.parametrize("n, sizes", [(1, [1]), (256, [256]), (600, [256, 256, 88])])
def test_chunks(n, sizes):
    product = Recorder()
    found = joint_arrays(product, n, 5)
    assert [size for size, _ in product.calls] == sizes
    assert found["images"].shape == (n, 2, 2, 1) and found["capsules"].shape == (n, 3, 4)
    expected = np.concatenate([np.arange(size) + 1000 * (i + 1) for i, size in enumerate(sizes)])
    np.testing.assert_array_equal(found["images"][:, 0, 0, 0], expected)
    np.testing.assert_array_equal(found["capsules"][:, 0, 0], expected // 1000)


def test_chunks_have_seeds_of_their_own():
    seeds = []
    for seed in (5, 5, 6):
        product = Recorder()
        joint_arrays(product, 2000, seed)
        seeds.append([chunk_seed for _, chunk_seed in product.calls])
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0] + seeds[2])) == 16
    # What a stateless seed and a click option take.
    assert all(0 <= seed < 2**31 for seed in seeds[0])
