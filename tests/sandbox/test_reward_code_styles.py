"""Correct programs in unusual styles: a wrong reject teaches a policy to write otherwise for no reason."""

import asyncio
import shutil

import pytest

from reward_fns.unit_tests import compute_score
from tests.sandbox.code_styles import PROBLEMS, STYLES, Style

RUN = [style for style in STYLES if style.language == "python" or shutil.which("g++")]


async def judge(style: Style) -> str:
    completion = f"<think>r</think>Here:\n```{style.language}\n{style.source}\n```\n"
    problem = {**PROBLEMS[style.problem], "time_limit": 10, "memory_limit": 256}
    return str((await compute_score("test", completion, problem))["verdict"])


@pytest.fixture(scope="module")
def verdicts(isolated: None) -> dict[str, str]:
    async def all_of_them() -> list[str]:
        return await asyncio.gather(*map(judge, RUN))

    return dict(zip([style.name for style in RUN], asyncio.run(all_of_them()), strict=True))


@pytest.mark.parametrize("style", RUN, ids=lambda style: style.name)
def test_a_correct_program_scores(style: Style, verdicts: dict[str, str]) -> None:
    assert verdicts[style.name] == "correct"
