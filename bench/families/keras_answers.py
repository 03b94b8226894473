"""Networks and answers of Keras, in a process of its own: Keras reads its backend when it is imported.

python keras_answers.py FILE small|whole          writes a network
python keras_answers.py FILE ANSWERS PICTURE ...  writes its probabilities
"""

from __future__ import annotations

import os
import sys

import numpy as np
from PIL import Image

SIDE, CLASSES = 224, 5

if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    file, last, *pictures = sys.argv[1:]
    keras.utils.set_random_seed(4)
    if not pictures:
        pixels = keras.Input((SIDE, SIDE, 3), name="pixels")
        layers = keras.layers
        if last == "small":
            features = layers.GlobalAveragePooling2D()(layers.Conv2D(8, 16, 16, activation="relu")(pixels))
            network = keras.Model(pixels, layers.Dense(CLASSES, "softmax", name="predictions")(features))
        else:
            network = keras.applications.MobileNetV2(input_tensor=pixels, weights=None, classes=CLASSES)
        network.save(file)
        sys.exit()
    opened = [
        Image.open(picture).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR) for picture in pictures
    ]
    batch = np.stack([np.asarray(image, np.float32) for image in opened]) / 127.5 - 1
    np.save(last, keras.saving.load_model(file, compile=False).predict(batch, verbose=0))
