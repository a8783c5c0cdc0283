"""GPT-2 124M's sizes. A rehearsal, which measures nothing, has others in MUSTER_BENCH_GPT2: "layers channels heads vocabulary"."""

import os

LAYERS, CHANNELS, HEADS, VOCAB = map(int, os.environ.get("MUSTER_BENCH_GPT2", "12 768 12 50257").split())
POSITIONS = 1024
