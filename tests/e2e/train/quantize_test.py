#!/usr/bin/env python3
"""muster-train quantize from end to end: the table's losses equal eval's, of the folder too and on any number of ranks; text from it;
its output agrees with config.json; training goes on from it; and its mistakes."""
import json
import struct
import unittest

from generate_test import SmallModels, run

CONFIG = """\
training: {{steps: 60, micro_batch: 4, global_batch: 8, sequence_length: 32, learning_rate: 1.0e-2, schedule: constant, warmup_steps: 3,
           threads: 1, output: "{folder}/exported", output_format: hf}}
model: {{architecture: {architecture}, layers: 2, channels: 64, heads: 2}}
data: {{path: "{folder}/text", validation_share: 0.2}}
logging: {{sample_length: 0}}
"""
METHODS = {"int8": ("--method=int8",), "int4": ("--method=int4",), "int4 32": ("--method", "int4", "--group", "32"),
           "gptq": ("--method=gptq", "--calibration=16"), "pruned": ("--method=none", "--prune=0.3"), "both": ("--method=int4", "--prune=0.5"),
           "tables": ("--method=int4", "--tables"), "kept": ("--method=int8", "--keep=*mlp*")}


def tensors(path):
    """{name: (type, shape)} of a safetensors file, and its bytes of tensors."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"]) for name, t in header.items()}, len(data) - 8 - length


class Quantize(SmallModels):
    config = CONFIG

    def quantize(self, folder, name):
        words = ("quantize", folder / "config.yaml", "--model", folder / "exported", "--to", folder / name, "--output=json", *METHODS[name])
        return json.loads(run(*words).stdout)

    def test_losses_and_bytes(self):
        for folder in self.folders.values():
            plain = json.loads(run("eval", folder / "config.yaml", "--model", folder / "exported", "--output=json").stdout)
            for name in METHODS:
                table = self.quantize(folder, name)
                self.assertEqual(table["loss_before"], plain["loss"], name)
                done = run("eval", folder / "config.yaml", "--model", folder / name, "--output=json")
                self.assertEqual(json.loads(done.stdout)["loss"], table["loss_after"], name)  # to the bit
                file = "model.safetensors" if name == "pruned" else "quantized.safetensors"
                self.assertEqual([path.name for path in (folder / name).glob("*.safetensors")], [file])
                found, size = tensors(folder / name / file)
                self.assertEqual(size, table["bytes_after"], name)
                self.assertEqual(tensors(folder / "exported" / "model.safetensors")[1], table["bytes_before"], name)
                coded = sum(tensor.endswith((".int4", ".int8")) for tensor in found)
                self.assertEqual(coded, 0 if name == "pruned" else table["tensors"], name)
                config = json.loads((folder / name / "config.json").read_text())
                self.assertEqual(config.get("quantization_config"), None if name == "pruned" else {"quant_method": "muster"})
                if name != "pruned":
                    self.assertRegex(done.stderr.splitlines()[0], rf"/{name}: \d+ of \d+ tensors are in .*opened to fp32 as they were read")
                self.assertLess(table["loss_after"], plain["loss"] + 0.3, name)
                self.assertNotEqual(table["loss_after"], plain["loss"], name)
                if "prune" in "".join(METHODS[name]):
                    self.assertAlmostEqual(table["pruned"] / table["elements"], 0.3 if name == "pruned" else 0.5, places=3)

    def test_layouts(self):
        folder = self.folders["gpt2"]
        self.quantize(folder, "int4 32")
        found, _ = tensors(folder / "int4 32" / "quantized.safetensors")
        name = "transformer.h.0.attn.c_attn.weight"  # (out, in), whatever way around GPT-2's own file has it
        self.assertEqual([found[name + part] for part in (".int4", ".scale", ".zero")],
                         [("U8", [192, 32]), ("F16", [192, 2]), ("U8", [192, 2])])
        self.assertEqual(found["transformer.wte.weight"], ("F32", [256, 64]))
        self.assertEqual(found["transformer.h.1.attn.c_attn.bias"], ("F32", [192]))
        self.quantize(folder, "kept")
        found, _ = tensors(folder / "kept" / "quantized.safetensors")
        self.assertEqual([found["transformer.h.1.attn.c_proj.weight" + part] for part in (".int8", ".scale")], [("I8", [64, 64]), ("F32", [64])])
        self.assertEqual(found["transformer.h.1.mlp.c_fc.weight"], ("F32", [64, 256]))

    def test_ranks_text_and_training(self):
        folder = self.folders["llama"]
        config = folder / "config.yaml"
        self.quantize(folder, "gptq")
        alone = run("eval", config, "--model", folder / "gptq").stdout.splitlines()
        self.assertIn("14 of 21 tensors are in int4 in groups of 64, opened to fp32", alone[0])
        several = run("eval", config, "--model", folder / "gptq", ranks=3).stdout
        self.assertIn(alone[1].split(",")[0], several)
        text = run("generate", "--model", folder / "gptq", "--prompt=the quick", "--temperature=0", "--max-tokens=20")
        self.assertIn("brown", text.stdout)
        self.assertIn("14 of 21 tensors are in int4", text.stderr)
        # It may be trained on, in full width: the result is a model like any other.
        again = folder / "again.yaml"
        again.write_text(f'model: {{path: "{folder / "gptq"}"}}\ndata: {{path: "{folder / "text"}"}}\n'
                         f'training: {{steps: 3, global_batch: 4, sequence_length: 32, threads: 1, output: "{folder / "again"}", output_format: hf}}\n'
                         "logging: {sample_length: 0}\n")
        self.assertIn("14 of 21 tensors are in int4", run(again).stdout)
        self.assertNotIn("quantization_config", (folder / "again" / "config.json").read_text())
        self.assertEqual(len(tensors(folder / "again" / "model.safetensors")[0]), 21)
        run("quantize", folder / "config.yaml", "--model", folder / "again", "--to", folder / "again", "--method=int8")  # in its place
        self.assertEqual([path.name for path in (folder / "again").glob("*.safetensors")], ["quantized.safetensors"])

    def test_the_table(self):
        folder = self.folders["llama"]
        lines = run("quantize", folder / "config.yaml", "--model", folder / "exported", "--to", folder / "shown", "--method=int4").stdout.splitlines()
        self.assertRegex(lines[0], r"^int4 in groups of 64: 14 of 21 tensors, in \d+\.\d s$")
        self.assertEqual(lines[1].split(), ["loss", "perplexity", "bytes", "bits"])
        self.assertEqual([line.split()[0] for line in lines[2:]], ["before", "after", "saved"])

    def test_damaged_parts(self):
        folder = self.folders["llama"]
        self.quantize(folder, "int4")
        path = folder / "int4" / "quantized.safetensors"
        data = path.read_bytes()
        name = b"model.layers.0.self_attn.q_proj.weight"
        for old, new, text in ((b'"' + name + b'.zero"', b'"' + name + b'.zeri"', ".zero is missing, or is not U8"),
                               (b'"' + name + b'.scale"', b'"' + name + b'.scala"', ".scale is missing, or is not F16"),
                               (b'"' + name + b'.int4"', b'"' + name + b'.int8"', ".int8 is missing, or is not I8")):
            self.assertIn(old, data)
            path.write_bytes(data.replace(old, new))
            self.assertIn(name.decode() + text, run("eval", folder / "config.yaml", "--model", folder / "int4", code=2).stderr)
        path.write_bytes(data)

    def test_mistakes_are_named(self):
        folder = self.folders["llama"]
        words = (folder / "config.yaml", "--model", folder / "exported", "--to", folder / "none")
        for more, text in ((("--method=int4", "--group=48"), "a row has 64 columns, which groups of 48 do not divide: use a divisor, such as 64"),
                           (("--method=int4", "--group=33"), "groups of 33 columns; two codes share a byte, so that a group must be an even number"),
                           (("--method=int8", "--group=32"), "--group 32 has no effect with --method int8; int4 and gptq have groups"),
                           (("--method=int8", "--calibration=3"), "--calibration 3 has no effect with --method int8; gptq has one"),
                           (("--method=int8", "--keep=h.0.*"), "'h.0.*' matches no tensor of llama"),
                           (("--method=int8", "--keep=*"), "name fewer tensors to be kept"),
                           (("--method=gptq", "--prune=0.5"), "gptq makes up for errors in elements that were pruned: prune with int4 or int8"),
                           (("--method=none",), "method none changes nothing without a share to prune"),
                           (("--method=int3",), "--method: 'int3' is none of int8, int4, gptq and none"),
                           (("--method=int8", "--prune=1"), "--prune: '1' is not a share above 0 and below 1"),
                           ((), "quantize needs --method int8, int4, gptq or none, and --to")):
            self.assertIn(text, run("quantize", *words, *more, code=2).stderr, more)
        self.assertFalse((folder / "none" / "model.safetensors").exists())
        self.assertIn("quantize is one process, and there are 2 ranks: start it without muster run",
                      run("quantize", *words, "--method=int8", ranks=2, code=2).stderr)
        adapters = folder / "lora.yaml"
        adapters.write_text((folder / "config.yaml").read_text() + "lora: {rank: 2}\n")
        done = run("quantize", adapters, *words[1:], "--method=int8", "--set", "training.output_format=peft", code=2)
        self.assertIn("has adapters: export it with lora.merge=true first", done.stderr)
        bad = folder / "nan"
        bad.mkdir(exist_ok=True)
        (bad / "config.json").write_bytes((folder / "exported" / "config.json").read_bytes())
        data = bytearray((folder / "exported" / "model.safetensors").read_bytes())
        length = struct.unpack("<Q", data[:8])[0]
        at = 8 + length + json.loads(data[8:8 + length])["model.layers.1.mlp.up_proj.weight"]["data_offsets"][0]
        data[at + 4 * 65:at + 4 * 66] = struct.pack("<f", float("nan"))
        (bad / "model.safetensors").write_bytes(data)
        self.assertIn("model.layers.1.mlp.up_proj.weight: element (1, 1) is nan; it must be finite",
                      run("quantize", folder / "config.yaml", "--model", bad, "--to", folder / "none", "--method=int8", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
