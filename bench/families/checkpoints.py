"""Small random checkpoints of Hugging Face's families, with tokenizers trained here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Yes",
    "Interest rates were raised by a quarter of a percentage point, and nobody in Paris was surprised.",
    "Où est la bibliothèque ? 東京は日本の首都です。",
    "word " * 100,
    "",
)
"""Texts of many lengths, one longer than any network here takes, and an empty one."""
_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 66,
}
TEXT_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {}),
    "roberta": ("Roberta", {}),
    "xlm-roberta": ("XLMRoberta", {}),
    "distilbert": ("DistilBert", {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}),
    "deberta": ("Deberta", {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "deberta-v2": (
        "DebertaV2",
        {
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_buckets": 16,
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_biased_input": False,
            "type_vocab_size": 0,
        },
    ),
    "mpnet": ("MPNet", {}),
    "electra": ("Electra", {}),
    "albert": ("Albert", {"embedding_size": 32}),
    "modernbert": ("ModernBert", {"global_attn_every_n_layers": 2, "local_attention": 8}),
}
"""Type of model -> the beginning of transformers' classes, and what its configuration has besides the usual sizes."""


def text_checkpoint(folder: Path, family: str, head: str, seed: int = 0, spread: int = 8, **settings: Any) -> Path:
    """A checkpoint of a family with a head such as ForSequenceClassification, or Model for none; its weights are
    `spread` times the usual ones."""
    import torch
    import transformers

    prefix, more = TEXT_FAMILIES[family]
    byte_level = family in ("roberta", "modernbert", "xlm-roberta")
    vocabulary = save_tokenizer(folder, byte_level)
    special = ("<pad>", "<s>", "</s>") if byte_level else ("[PAD]", "[CLS]", "[SEP]")
    pad, start, end = (vocabulary[token] for token in special)
    ids = {"pad_token_id": pad, "bos_token_id": start, "eos_token_id": end, "cls_token_id": start, "sep_token_id": end}
    values = {**_SIZES, **ids, "vocab_size": len(vocabulary), **more, **settings}
    config = getattr(transformers, f"{prefix}Config")(**values)
    torch.manual_seed(seed)
    module = getattr(transformers, f"{prefix}{head}")(config).eval()
    with torch.no_grad():  # weights of the usual small spread give nearly the same answer for each text
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.mul_(spread)
    module.save_pretrained(folder)
    return folder


def save_tokenizer(folder: Path, byte_level: bool = False) -> dict[str, int]:
    """Train a small WordPiece or byte-level BPE tokenizer and save it as transformers does; its vocabulary."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    if byte_level:
        pad, start, end, unknown, mask = special = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
        special = [start, pad, unknown, end, mask]
        tokenizer = Tokenizer(models.BPE(unk_token=unknown))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        )
    else:
        pad, start, end, unknown, mask = special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
        tokenizer = Tokenizer(models.WordPiece(unk_token=unknown))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special)
    tokenizer.train_from_iterator(TEXTS, trainer)
    vocabulary = tokenizer.get_vocab()
    pair = f"{start} $A {end} {end} $B {end}" if byte_level else f"{start} $A {end} $B:1 {end}:1"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}", pair=pair, special_tokens=[(t, vocabulary[t]) for t in (start, end)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        cls_token=start,
        sep_token=end,
        unk_token=unknown,
        mask_token=mask,
        bos_token=start,
        eos_token=end,
        model_max_length=64,
        model_input_names=["input_ids", "attention_mask", *([] if byte_level else ["token_type_ids"])],
    )
    fast.save_pretrained(folder)
    return vocabulary


def sentence_files(folder: Path, mode: str, width: int, normalize: bool = True) -> None:
    """The files of sentence-transformers for a checkpoint."""
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")][: 3 if normalize else 2]
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    modes = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "sqrt": "mean_sqrt_len_tokens"}
    pooling = {f"pooling_mode_{key}": one == mode for one, key in modes.items()} | {"word_embedding_dimension": width}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "2_Normalize").mkdir()
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 48, "do_lower_case": False}))


IMAGE_FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "vit": ("ViT", {**_SIZES, "image_size": 32, "patch_size": 8}, {"size": {"height": 32, "width": 32}}),
    "deit": (
        "DeiT",
        {**_SIZES, "image_size": 32, "patch_size": 8},
        {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}, "do_center_crop": True},
    ),
    "dinov2": (
        "Dinov2",
        {**_SIZES, "image_size": 32, "patch_size": 8},
        {
            "size": {"shortest_edge": 40},
            "crop_size": {"height": 32, "width": 32},
            "image_processor_type": "BitImageProcessor",
        },
    ),
    "swin": (
        "Swin",
        {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4},
        {"size": {"height": 32, "width": 32}, "image_processor_type": "ViTImageProcessor", "resample": 3},
    ),
    "convnext": (
        "ConvNext",
        {"image_size": 32, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
        {"size": {"shortest_edge": 32}, "crop_pct": 0.8},
    ),
    "resnet": (
        "ResNet",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
        {"size": {"shortest_edge": 32}, "crop_pct": 0.8, "image_processor_type": "ConvNextImageProcessor"},
    ),
}
"""Type of model -> the beginning of transformers' classes, its configuration, and its image processor's."""


def image_checkpoint(folder: Path, family: str, head: str, seed: int = 0, **settings: Any) -> Path:
    """A checkpoint of images with a head such as ForImageClassification, or Model for none."""
    import torch
    import transformers

    prefix, values, processor = IMAGE_FAMILIES[family]
    torch.manual_seed(seed)
    module = getattr(transformers, f"{prefix}{head}")(getattr(transformers, f"{prefix}Config")(**values, **settings))
    module.eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
    module.save_pretrained(folder)
    facts = {"image_processor_type": f"{prefix}ImageProcessor", **processor}
    (folder / "preprocessor_config.json").write_text(json.dumps(facts))
    return folder


def pictures() -> list[bytes]:
    """Pictures of several sizes and formats, smooth enough that a resize of any kind agrees on them."""
    import io

    import numpy as np
    from PIL import Image

    encoded = []
    for number, (size, kind) in enumerate(
        (((64, 64), "PNG"), ((120, 80), "PNG"), ((80, 160), "JPEG"), ((32, 32), "PNG"))
    ):
        noise = np.random.default_rng(number).integers(0, 256, (6, 6, 3), np.uint8)
        stream = io.BytesIO()
        Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC).save(stream, kind)
        encoded.append(stream.getvalue())
    return encoded


SOUND_FAMILIES = {"wav2vec2": "Wav2Vec2", "hubert": "Hubert"}
"""Type of model -> the beginning of transformers' classes."""


def sound_checkpoint(folder: Path, family: str, head: str, seed: int = 0, **settings: Any) -> Path:
    """A checkpoint of waveforms with a head such as ForSequenceClassification or ForCTC."""
    import torch
    import transformers

    sizes = {key: value for key, value in _SIZES.items() if key != "max_position_embeddings"}
    values = {"conv_dim": [16] * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2, **sizes}
    prefix = SOUND_FAMILIES[family]
    torch.manual_seed(seed)
    config = getattr(transformers, f"{prefix}Config")(**{**values, **settings})
    module = getattr(transformers, f"{prefix}{head}")(config).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.mul_(2)
    module.save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(folder)
    return folder


def speech_checkpoint(
    folder: Path, family: str = "wav2vec2", sizes: Mapping[str, Any] | None = None, **settings: Any
) -> Path:
    """A checkpoint of speech recognition with letters as tokens; `settings` are those of its tokenizer."""
    import transformers

    tokens = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "'"]
    sound_checkpoint(folder, family, "ForCTC", vocab_size=len(tokens), pad_token_id=0, **(sizes or {}))
    vocabulary = folder / "vocab.json"
    vocabulary.write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    transformers.Wav2Vec2CTCTokenizer(str(vocabulary), **settings).save_pretrained(folder)
    return folder


def sounds() -> list[bytes]:
    """WAV files of several lengths: tones that rise, at 16 kHz."""
    import io
    import wave

    import numpy as np

    encoded = []
    for number, seconds in enumerate((0.25, 1.0, 1.5)):
        times = np.arange(int(16000 * seconds)) / 16000
        tones = np.sin(2 * np.pi * (150 * (number + 1) + 400 * times) * times) * 9000
        stream = io.BytesIO()
        with wave.open(stream, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16000)
            file.writeframes(tones.astype("<i2").tobytes())
        encoded.append(stream.getvalue())
    return encoded


def tower_checkpoint(
    folder: Path,
    family: str = "CLIP",
    seed: int = 0,
    *,
    text: Mapping[str, Any] | None = None,
    vision: Mapping[str, Any] | None = None,
    width: int = 24,
    resize: int = 40,
    crop: int = 32,
) -> Path:
    """A checkpoint of CLIP or Siglip with its tokenizer and its image processor.

    Args:
        text, vision: what the towers' configurations have besides the usual sizes.
        width: numbers of a vector.
        resize, crop: sides in pixels.
    """
    import torch
    import transformers

    vocabulary = save_tokenizer(folder, byte_level=True)
    # CLIP's vector is that of the end of the text, padding or not.
    ids = {"bos_token_id": vocabulary["<s>"], "eos_token_id": vocabulary["</s>"], "pad_token_id": vocabulary["<pad>"]}
    sizes = {**_SIZES, "max_position_embeddings": 32, "vocab_size": len(vocabulary), "projection_dim": width, **ids}
    words = {**sizes, **(text or {})}
    pixels = {**_SIZES, "image_size": crop, "patch_size": 8, "projection_dim": width, **(vision or {})}
    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(text_config=words, vision_config=pixels, projection_dim=width)
    getattr(transformers, f"{family}Model")(config).eval().save_pretrained(folder)
    size = {"height": crop, "width": crop}
    cut = {"size": {"shortest_edge": resize}, "crop_size": size} if family == "CLIP" else {"size": size}
    facts = {"image_processor_type": f"{family}ImageProcessor", **cut}
    (folder / "preprocessor_config.json").write_text(json.dumps(facts))
    return folder


def whisper_checkpoint(folder: Path, head: str, seconds: int = 2, mels: int = 80, **settings: Any) -> Path:
    """A checkpoint of Whisper with a head such as Model or ForConditionalGeneration, for sounds of some seconds."""
    import torch
    import transformers

    sizes = {"d_model": 32, "vocab_size": 64, "max_target_positions": 16, "pad_token_id": 0}
    sides = ("encoder", "decoder")
    sizes |= {f"{side}_{name}": 2 for side in sides for name in ("layers", "attention_heads")}
    sizes |= {f"{side}_ffn_dim": 64 for side in sides}
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "suppress_tokens": None}
    positions = seconds * 50
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        num_mel_bins=mels, max_source_positions=positions, begin_suppress_tokens=None, **sizes, **tokens, **settings
    )
    module = getattr(transformers, f"Whisper{head}")(config).eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.ndim > 1 and "embed_positions" not in name:
                parameter.mul_(4)
    module.save_pretrained(folder)
    transformers.WhisperFeatureExtractor(feature_size=mels, chunk_length=seconds).save_pretrained(folder)
    return folder
