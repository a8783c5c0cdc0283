"""TorchFT for the interpreter with PyTorch, installed at its first use."""

import os
import pathlib
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[2]
HOME = SOURCE / ".venv-peers" / "torchft"
REQUIREMENTS = ["torchft==0.2.0"]
BESIDE = ["opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk", "opentelemetry-api"]  # not torch, which is there


def install(python):
    """Why there is no TorchFT; "": there is."""
    if not (HOME / "torchft").exists():
        for words in (["--no-deps", *REQUIREMENTS], BESIDE):
            command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--upgrade", "--target", str(HOME), *words]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            except (OSError, subprocess.TimeoutExpired) as problem:
                return f"TorchFT cannot be installed: {problem}"
            if done.returncode:
                return "TorchFT cannot be installed: " + (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    done = subprocess.run(
        [python, "-c", "import torchft"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(HOME)}
    )
    return "" if done.returncode == 0 else "TorchFT cannot be imported: " + (done.stderr.strip().splitlines() or ["?"])[-1]
