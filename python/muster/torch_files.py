"""safetensors files of tensors that come and go one at a time (`muster.torch`)."""

import json
import os
import struct

import torch

KINDS = {torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64", torch.int32: "I32",
         torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}


class SafetensorsWriter:
    """tensors: (name, dtype, shape) in the order in which they will be written. The file appears when it is complete."""

    def __init__(self, path, tensors, metadata=None):
        header, at = {"__metadata__": metadata} if metadata else {}, 0
        for name, dtype, shape in tensors:
            if dtype not in KINDS:
                raise ValueError(f"{name} is {dtype}, which safetensors files do not have")
            size = shape.numel() * dtype.itemsize
            header[name] = {"dtype": KINDS[dtype], "shape": list(shape), "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self.path, self.beside = os.fspath(path), f"{os.fspath(path)}.part"
        self.file = open(self.beside, "wb")
        self.file.write(struct.pack("<Q", len(text)) + text)

    def write(self, tensor):
        self.file.write(memoryview(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()))

    def close(self, complete):
        with self.file:
            if complete:
                self.file.flush()
                os.fsync(self.file.fileno())
        if complete:
            os.replace(self.beside, self.path)
        else:
            os.remove(self.beside)


class SafetensorsReader:
    def __init__(self, path):
        self.path, self.file = path, open(path, "rb")
        start = self.file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        left = os.fstat(self.file.fileno()).st_size - 8
        try:
            if not 2 <= length <= min(left, 1 << 28):
                raise ValueError(f"a header of {length} bytes in a file of {left + 8}")
            self.header = json.loads(self.file.read(length))
            self.metadata = self.header.pop("__metadata__", {})
            ends = [entry["data_offsets"][1] for entry in self.header.values()]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} is not a safetensors file: {error}") from None
        if max(ends, default=0) > left - length:
            raise ValueError(f"{path} is cut short: {left - length} bytes of tensors, {max(ends)} expected")
        self.first = 8 + length

    def check(self, tensors, counted):
        """tensors: {name: (dtype, shape)} that are needed, all of them and no others; counted: keys of the metadata."""
        for name, (dtype, shape) in tensors.items():
            entry = self.header.get(name)
            if entry is None:
                raise ValueError(f"{self.path} has no {name}: it was saved by another model or optimizer")
            if (entry["dtype"], entry["shape"]) != (KINDS[dtype], list(shape)):
                raise ValueError(f"{name} is {entry['dtype']} {entry['shape']} in {self.path}, expected {KINDS[dtype]} {list(shape)}")
        extra = sorted(set(self.header) - set(tensors))
        if extra:
            raise ValueError(f"{self.path} has {extra[0]}, which this model and optimizer have not")
        for name in counted:
            if not str(self.metadata.get(name, "")).isdigit():
                raise ValueError(f"{self.path} does not say how often {name} was updated: it is no file of save_state()")

    def read(self, name):
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        self.file.seek(self.first + begin)
        dtype = next(dtype for dtype, kind in KINDS.items() if kind == entry["dtype"])
        return torch.frombuffer(bytearray(self.file.read(end - begin)), dtype=dtype).view(entry["shape"]) if end > begin else torch.empty(entry["shape"], dtype=dtype)
