"""Pictures in folders against Pillow and torchvision's rules: JPEG files (colours, gray, Adobe's inks, progressive) and PNG files have Pillow's
pixels; data.resize makes them smaller by Pillow's bilinear filter to the bit, and an evaluation takes the middle, as Resize and CenterCrop do. A
training takes parts of the resized pictures, or boxes of RandomResizedCrop. Sets of more than 256 classes are read from their files for each sample.

folders_pillow_test.py"""
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_python  # noqa: E402: after the path

torch_python.require(load=False)
try:
    import numpy
    from PIL import Image
except ImportError:
    torch_python.skip("no package Pillow beside PyTorch")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "data"))
from training_runs import losses  # noqa: E402

BIN = pathlib.Path(torch_python.build()) / "bin"
os.environ["OMP_NUM_THREADS"] = "1"
DUMP = pathlib.Path(torch_python.build()) / "tests/pictures_dump"
SIZE, RESIZE = 24, 32


def make_picture(draw, width, height):
    """Smooth colours with edges and noise."""
    grid = numpy.random.default_rng(draw.randrange(1 << 30)).integers(0, 256, (5, 6, 3), dtype=numpy.uint8)
    return Image.fromarray(grid).resize((width, height), Image.BICUBIC)


def make_set(root):
    draw = random.Random(4)
    for number in range(12):
        folder = root / ("a", "b", "c")[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        picture = make_picture(draw, draw.randrange(33, 90), draw.randrange(33, 90))
        if number in (4, 8):
            picture = picture.convert("L")
        if number == 5:
            picture = picture.convert("CMYK")
        if number % 4 == 3:
            picture.save(folder / f"{number}.png")
        else:
            picture.save(folder / f"{number}.{('jpg', 'JPEG', 'jpeg')[number % 3]}", "JPEG", quality=70 + number, progressive=number % 2 == 1,
                         subsampling=number % 3 if picture.mode == "RGB" else -1)


def files_of(root):
    return [(path, label) for label, folder in enumerate(sorted(root.iterdir())) for path in sorted(folder.iterdir())]


def resized(path):
    picture = Image.open(path).convert("RGB")
    (width, height), short = picture.size, min(picture.size)
    size = (RESIZE, int(RESIZE * height / short)) if width <= height else (int(RESIZE * width / short), RESIZE)
    return picture.resize(size, Image.BILINEAR)


def dump(train, held, size, classes, resize, area, count):
    done = subprocess.run([DUMP, train, held, *map(str, (size, classes, resize, area, count))], capture_output=True, check=False)
    each, samples = 4 + 3 * size * size, []
    for at in range(0, len(done.stdout) - each + 1, each):
        label, = struct.unpack_from("<i", done.stdout, at)
        samples.append((label, numpy.frombuffer(done.stdout, numpy.uint8, each - 4, at + 4).reshape(3, size, size).transpose(1, 2, 0)))
    return samples[:count], samples[count:], done.stderr.decode()


def check_resize(root):
    files = files_of(root)
    _, held, error = dump(root, root, SIZE, 3, RESIZE, 0, 0)
    assert not error and len(held) == len(files), error
    for (path, label), (ours, pixels) in zip(files, held):
        picture = resized(path)
        left, top = round((picture.width - SIZE) / 2), round((picture.height - SIZE) / 2)
        wanted = numpy.asarray(picture.crop((left, top, left + SIZE, top + SIZE)))
        off = int(numpy.abs(pixels.astype(int) - wanted).max())
        assert ours == label and off == 0, (path.name, off)
    print(f"{len(files)} pictures, resized and from the middle: equal to Pillow's")
    parts, _, _ = dump(root, root, SIZE, 3, RESIZE, 0, 3 * len(files))
    whole = [(label, numpy.asarray(resized(path))) for path, label in files]
    inside = lambda part, of: any(numpy.array_equal(part, of[y:y + SIZE, x:x + SIZE]) for y in range(of.shape[0] - SIZE + 1) for x in range(of.shape[1] - SIZE + 1))
    for label, part in parts:
        assert any(label == of and inside(part, pixels) for of, pixels in whole)
    assert len({part.tobytes() for _, part in parts}) > 2 * len(files)
    boxes, held, _ = dump(root, root, SIZE, 3, RESIZE, 0.08, 3 * len(files))
    assert len({part.tobytes() for _, part in boxes}) == 3 * len(files) and len(held) == len(files)
    again, _, _ = dump(root, root, SIZE, 3, RESIZE, 0.08, 3 * len(files))
    assert all(numpy.array_equal(a[1], b[1]) for a, b in zip(boxes, again))


def check_many(folder):
    """300 classes: read from files; smaller pictures are put into the middle."""
    root, draw = folder / "many", random.Random(5)
    for number in range(300):
        (root / f"{number:03}").mkdir(parents=True)
        make_picture(draw, 6, 8).save(root / f"{number:03}" / "x.jpg", quality=95)
    _, held, error = dump(root, root, 8, 300, 0, 0, 0)
    assert not error and [label for label, _ in held] == list(range(300)), error
    for number, (_, pixels) in enumerate(held):
        assert numpy.array_equal(pixels[:, 1:7], numpy.asarray(Image.open(root / f"{number:03}" / "x.jpg"))) and not pixels[:, (0, 7)].any()


def check_training(folder, root):
    """Files are read for each sample: the same losses on two ranks, and after a resume; 300 classes."""
    many = folder / "many"
    wanted = None
    for name, ranks, steps in ("one", 1, 6), ("two", 2, 6), ("two", 2, 9), ("nine", 1, 9):
        out = folder / name
        out.mkdir(exist_ok=True)
        (out / "run.yaml").write_text(json.dumps({
            "model": {"type": "simple_cnn", "num_classes": 300, "input_size": 16}, "logging": {"json": "log.jsonl"},
            "data": {"dataset": "folders", "data_dir": str(many), "resize": 20, "crop_area": 0.3, "validation_share": 0.1},
            "training": {"steps": steps, "global_batch": 8, "micro_batch": 4, "learning_rate": 0.001, "seed": 4, "threads": 1, "evaluate_every": 3,
                         "checkpoint_dir": "kept", "checkpoint_every": 3}}))
        launch = [BIN / "muster", "run", "--standalone", f"--nproc_per_node={ranks}", "--termination-log="] if ranks > 1 else []
        found, said = losses([*launch, BIN / "muster-train", "run.yaml"], out)
        wanted = {**found, **(wanted or {})} if name != "nine" else wanted
        assert max(abs(found[step] / wanted[step] - 1) for step in found) < 1e-5 and max(found) == steps, (name, found, wanted)
    print(f"{len(wanted)} steps on one and two ranks and after a resume have the same losses; {said.count('evaluation after step')} evaluations of 300 classes")


def check_refused(folder, root):
    path = root / "a" / "0.jpg"
    whole = path.read_bytes()
    for content, words in (whole[:len(whole) // 2], "0.jpg cannot be read: "), (b"GIF89a", "0.jpg is no PNG and no JPEG file"):
        path.write_bytes(content)
        error = dump(root, root, SIZE, 3, RESIZE, 0, 1)[2] + dump(root, root, SIZE, 3, RESIZE, 0, 12)[2]
        assert words in error, (words, error)
    path.write_bytes(whole)
    assert "larger than model.input_size 24: make it smaller, or set data.resize" in dump(root, root, SIZE, 3, 0, 0, 1)[2]
    assert "data.resize 16 is below model.input_size 24" in dump(root, root, SIZE, 3, 16, 0, 1)[2]
    (root / "a" / "x.webp").write_bytes(b"")
    assert "are read as PNG and JPEG: convert it" in dump(root, root, SIZE, 3, RESIZE, 0, 1)[2]


with tempfile.TemporaryDirectory(prefix="muster folders ") as temporary:
    made = pathlib.Path(temporary) / "set"
    make_set(made)
    check_resize(made)
    check_many(pathlib.Path(temporary))
    check_training(pathlib.Path(temporary), made)
    check_refused(pathlib.Path(temporary), made)
