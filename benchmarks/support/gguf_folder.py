"""A model of a GGUF file as a folder of Hugging Face in fp32, and the bytes of its tensors in the file.

    python gguf_folder.py FILE.gguf FOLDER

For few_bits.py, under an interpreter that has torch, transformers and gguf. Prints {"bytes", "types"} as JSON."""

import collections
import json
import pathlib
import sys

import gguf
import torch
import transformers


def main():
    source, folder = pathlib.Path(sys.argv[1]), sys.argv[2]
    where = dict(pretrained_model_name_or_path=source.parent, gguf_file=source.name)
    opened = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = {key: value for key, value in opened.config.to_dict().items() if key != "quantization_config"}
    plain = type(opened)(type(opened.config)(**config))  # a model that was read from gguf cannot be saved
    plain.load_state_dict(opened.state_dict())
    plain.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
    sizes = collections.Counter()
    for tensor in gguf.GGUFReader(source).tensors:
        sizes[tensor.tensor_type.name] += int(tensor.n_bytes)
    print(json.dumps({"bytes": sum(sizes.values()), "types": dict(sizes)}))


if __name__ == "__main__":
    main()
