import pickle

import pytest
import torch

from labkit.sharding.chain import Chain

keras = pytest.importorskip("keras")
if keras.backend.backend() != "torch":
    pytest.skip("Keras runs on another backend", allow_module_level=True)


def sequential():
    return keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            keras.layers.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.DepthwiseConv2D(3),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(5, activation="softmax"),
        ]
    )


def functional():
    put = keras.Input((8,))
    first = keras.layers.Dense(16, activation="relu")(put)
    second = keras.layers.Dense(16)(first)
    joined = keras.layers.LayerNormalization()(keras.layers.Add()([first, second]))
    return keras.Model(put, [keras.layers.Dense(3)(joined), first])


@pytest.mark.parametrize(("build", "shape"), [(sequential, (12, 12, 3)), (functional, (8,))])
def test_a_keras_model_is_cut_like_any_module(build, shape):
    model = build()
    chain = Chain.of(model, torch.randn(1, *shape))
    assert len(chain) >= 3
    for rows in (1, 4):
        x = torch.randn(rows, *shape)
        with torch.no_grad():
            wanted = model(x)
            for cut in range(1, len(chain)):
                assert chain.cut_allowed(cut)
                second = pickle.loads(pickle.dumps(chain.stage(cut, len(chain))))
                found = second(chain.stage(0, cut)(x))
                pairs = zip(found, wanted, strict=True) if isinstance(wanted, list) else [(found, wanted)]
                assert all(torch.equal(*pair) for pair in pairs)


def test_its_weights_are_counted_once():
    model = sequential()
    chain = Chain.of(model, torch.randn(1, 12, 12, 3))
    counted = sum(sum(chain.weights(layer).values()) for layer in range(len(chain)))
    assert counted == sum(int(weight.value.nbytes) for weight in model.weights)
