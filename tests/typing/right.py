"""Right uses: a type checker finds nothing."""

import numpy as np

import keras_capsule_poe as kcp

images = np.zeros((8, 28, 28), np.uint8)
labels = np.zeros(8, int)

model = kcp.ProductOfExpertCapsules(preset="detail", capsules=30, encoder={"epochs": 5}, name="my")
model.fit(images, epochs=3, batch_size=32, verbose=0, folder="run", validation_split=0.1)
model.sample(8, seed=3, domain="posterior").images.mean()
model.sample(np.int64(8), capsule=2)
codes = model.encode(images)
model.decode(codes).images.mean()
again = kcp.ProductOfExpertCapsules(model.autoencoder, model.primary, model.encoder, seed=2)
kcp.ProductOfExpertCapsules(recipe="paper", coefficient_sum="mean", activity=None, image_size=32)
kcp.ProductOfExpertCapsules(experts_class=kcp.CapsulePoE, encoder_class="my>Encoder")
kcp.ProductOfExpertCapsules(
    image_size=(32, 32), compute={"features_limit": "500MB"}, dtype="float32"
)

kcp.ProductOfExpertNeurons(preset="mixture", experts={"capsules": 30}, posterior_states=100)
kcp.ProductOfExpertNeurons(routing="latent", top={"capsules": 4, "dim": 8}, joint_steps=5)
machine = kcp.ImageBoltzmannMachine(
    hidden=20, binarize="threshold", persistent_chains=10, burn_in=5
)
kcp.ImageBoltzmannMachine(kcp.RestrictedBoltzmannMachine(3), (4, 4, 1), binarize=None)
machine.fit(images).keys()
network = kcp.CapsNet(preset="small", routing_iterations=2, classes=4, epochs=3, batch_size=16)
network.fit(images, labels)
network.classify(images)["classes"].mean()
kcp.MatrixCapsNet(preset="small", learning_rate=0.003, size=4, matrix={"decay_steps": None})

trained = kcp.train(
    "digits", recipe="detail", seed=1, limit=5000, epochs=3, verbose=0, folder="run"
)
trained.sample(4, capsule=7)
kcp.train("digits", encoder={"epochs": 5, "dim": 8}, autoencoder={"filters": 8}, data_dir="data")
kcp.train((images, labels), model="capsnet", preset="small", groups=labels, callbacks=[])
kcp.train(images, model="rbm", hidden=20, epochs=2, batch_size=None).sample(4)
kcp.train("mnist", model="neurons", preset="latent", joint_steps=3)
kcp.train("mnist", model="matrix-capsules", until_accuracy=0.9)
kcp.train("mnist", model=kcp.ProductOfExpertCapsules, anything=3)
kcp.load("mnist").encode(images).capsules.mean()
kcp.load("saved_models/digits").anything()
kcp.registry.create(kcp.registry.names()[0], "paper", seed=3).fit(images)
kcp.CapsulePoE(10, 16, use_routing_bias=True, name="experts")
kcp.functions.route([[[1.0]]], [[[[1.0]]]], agreement_scale=2.0)
kcp.data.load_images("digits", limit=100).train.head(10).images.mean()
kcp.training.train(kcp.registry.create("capsules"), "folder").metrics()
names: list[str] = kcp.registry.names()
