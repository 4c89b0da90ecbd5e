"""The Python environment of the peers: build/peers/venv, apart from everything that Weft needs."""
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / "build" / "peers" / "venv"
IMPORTS = "import torch, fbgemm_gpu, torchrec; print(torch.__version__, fbgemm_gpu.__version__, torchrec.__version__)"


def python(folder=FOLDER):
    return folder / "bin" / "python"


def versions(folder=FOLDER):
    """Of torch, fbgemm_gpu and torchrec as they are imported there, or None."""
    if not python(folder).exists():
        return None
    done = subprocess.run([python(folder), "-c", IMPORTS], capture_output=True, text=True)
    return dict(zip(("torch", "fbgemm_gpu", "torchrec"), done.stdout.split()[-3:])) if done.returncode == 0 else None


def make(folder=FOLDER):
    """Downloads what the two lists pin, some 300 MB to 3 GB. Returns None, or in a line why it cannot be had."""
    for command in ([sys.executable, "-m", "venv", "--clear", folder],
                    [python(folder), "-m", "pip", "install", "-q", "-r", HERE / "requirements.txt"],
                    [python(folder), "-m", "pip", "install", "-q", "--no-deps", "-r", HERE / "torchrec.txt"],
                    [python(folder), "-c", IMPORTS]):
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            return str(error)
        if done.returncode != 0:
            lines = (done.stderr.strip() or "no message").splitlines()
            return f"'{' '.join(map(str, command[:4]))} ...' failed: {lines[-1]}"
    return None
