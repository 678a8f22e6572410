"""The documentation names files, anchors and modules that exist, and its index is complete."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FOLDERS = "agon_verl|benchmarks|docs|examples|recipes|reward_fns|tests"


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        name, _, anchor = link.partition("#")
        if link.startswith(("https://", "http://")):
            continue
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    if page.name != "CHANGELOG.md":  # which names what was moved or removed
        paths = re.findall(rf"`((?:{FOLDERS})/[\w./-]+)`", prose(page))
        broken += [path for path in paths if not (ROOT / path).exists()]
    assert broken == []


def test_the_index_lists_every_page() -> None:
    links = re.findall(r"\]\(([\w.]+\.md)\)", (ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert sorted(links) == sorted(pages)
