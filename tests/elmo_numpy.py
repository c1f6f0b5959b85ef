"""The whole bidirectional language model in NumPy, float64, word by word, from datasets with the
names and the layout of the released HDF5 files.
"""

import json

import numpy as np

OPTIONS = {
    "lstm": {
        "cell_clip": 3,
        "proj_clip": 3,
        "n_layers": 2,
        "use_skip_connections": True,
        "projection_dim": 5,
        "dim": 9,
    },
    "char_cnn": {
        "embedding": {"dim": 4},
        "filters": [[1, 3], [2, 4], [4, 6]],
        "n_highway": 2,
        "n_characters": 262,
        "max_characters_per_token": 12,
        "activation": "relu",
    },
}
CELL = "RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell"


def make_datasets(options=OPTIONS, seed=0, scale=0.6):
    """Return {name: float32 array} of random weights, large enough that cells are clipped."""
    rng, cnn, lstm = np.random.default_rng(seed), options["char_cnn"], options["lstm"]
    E, D, C = cnn["embedding"]["dim"], lstm["projection_dim"], lstm["dim"]
    F = sum(number for _, number in cnn["filters"])
    shapes = {"char_embed": (261, E), "CNN_proj/W_proj": (F, D), "CNN_proj/b_proj": (D,)}
    for i, (window, number) in enumerate(cnn["filters"]):
        shapes |= {f"CNN/W_cnn_{i}": (1, window, E, number), f"CNN/b_cnn_{i}": (number,)}
    for i in range(cnn["n_highway"]):
        for name in ("carry", "transform"):
            shapes |= {f"CNN_high_{i}/W_{name}": (F, F), f"CNN_high_{i}/b_{name}": (F,)}
    for direction in range(2):
        for i in range(lstm["n_layers"]):
            cell = CELL.format(direction, i)
            shapes |= {f"{cell}/W_0": (2 * D, 4 * C), f"{cell}/B": (4 * C,)}
            shapes |= {f"{cell}/W_P_0": (C, D)}
    return {
        name: (scale * rng.standard_normal(shape)).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_folder(folder, datasets, options=OPTIONS):
    """Write datasets and options as a folder of released weights."""
    import h5py

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "options.json").write_text(json.dumps(options))
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, array in datasets.items():
            file[name] = array
    return folder


def spell(word, width):
    """Return the characters of a word; of "<S>" and "</S>" the ends of a sentence."""
    ends = {"<S>": [256], "</S>": [257]}
    inner = ends.get(word) or list(word.encode()[: width - 2])
    ids = [258, *inner, 259]
    return [i + 1 for i in ids + [260] * (width - len(ids))]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def read_word(word, datasets, options=OPTIONS):
    """Return the vector of a word."""
    cnn, maxima = options["char_cnn"], []
    table = np.concatenate([np.zeros((1, cnn["embedding"]["dim"])), datasets["char_embed"]])
    x_CE = table[spell(word, cnn["max_characters_per_token"])]
    for i, (window, _) in enumerate(cnn["filters"]):
        kernel = datasets[f"CNN/W_cnn_{i}"][0].astype(np.float64)
        values = [
            np.einsum("we,wen->n", x_CE[t : t + window], kernel)
            for t in range(len(x_CE) - window + 1)
        ]
        maxima.append(np.max(values, axis=0) + datasets[f"CNN/b_cnn_{i}"])
    x_F = np.concatenate(maxima)
    x_F = np.maximum(x_F, 0) if cnn["activation"] == "relu" else np.tanh(x_F)
    for i in range(cnn["n_highway"]):
        part = {key: datasets[f"CNN_high_{i}/{key}"].astype(np.float64) for key in PARTS}
        gate = sigmoid(x_F @ part["W_carry"] + part["b_carry"])
        x_F = (
            gate * np.maximum(x_F @ part["W_transform"] + part["b_transform"], 0) + (1 - gate) * x_F
        )
    return x_F @ datasets["CNN_proj/W_proj"].astype(np.float64) + datasets["CNN_proj/b_proj"]


PARTS = ("W_carry", "b_carry", "W_transform", "b_transform")


def read_direction(x_LD, direction, datasets, options=OPTIONS, state=None):
    """Return ([L, D] of each layer, the last states), words in the order of reading."""
    lstm, outputs, behind = options["lstm"], [], []
    for i in range(lstm["n_layers"]):
        cell = CELL.format(direction, i)
        W, b, P = (datasets[f"{cell}/{name}"].astype(np.float64) for name in ("W_0", "B", "W_P_0"))
        c, h = (
            (np.zeros(lstm["dim"]), np.zeros(lstm["projection_dim"])) if state is None else state[i]
        )
        rows = []
        for x in x_LD:
            gate_i, j, f, o = np.split(np.concatenate([x, h]) @ W + b, 4)
            c = sigmoid(f + 1) * c + sigmoid(gate_i) * np.tanh(j)
            c = np.clip(c, -lstm["cell_clip"], lstm["cell_clip"])
            h = np.clip((sigmoid(o) * np.tanh(c)) @ P, -lstm["proj_clip"], lstm["proj_clip"])
            rows.append(h + x if lstm["use_skip_connections"] and i else h)
        behind.append((c, h))
        x_LD = np.array(rows)
        outputs.append(x_LD)
    return outputs, behind


def read_sentence(words, datasets, options=OPTIONS, states=(None, None)):
    """Return ([L, 2 D] of the words and of each layer, the last states), float64."""
    x_LD = np.array([read_word(word, datasets, options) for word in words])
    forward, last = read_direction(x_LD, 0, datasets, options, states[0])
    backward, first = read_direction(x_LD[::-1], 1, datasets, options, states[1])
    layers = [np.concatenate([x_LD, x_LD], axis=1)]
    layers += [np.concatenate([f, b[::-1]], axis=1) for f, b in zip(forward, backward, strict=True)]
    return layers, (last, first)
