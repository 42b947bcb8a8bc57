"""The site: every public name has a page, docstrings become pages, links between files lead somewhere."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import walksum as ws

ROOT = Path(__file__).parent.parent
WORDS = re.search(r"mkdocs (build.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)[1].split()  # make docs
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)\s#]+)")


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_has_a_page():
    pytest.importorskip("mkdocs")
    hooks = script("site_hooks")
    names = [name for group in hooks.pages().values() for name in group]
    assert sorted(names) == sorted(ws.__all__)
    assert all(f"[`{name}`]({name}.md)" in hooks.index() for name in names)


def test_equations_and_roles_of_docstrings_are_translated():
    pytest.importorskip("latex2mathml")
    pytest.importorskip("griffe")
    translated = script("docstrings").translated
    text = translated(
        "A.\n\n.. math::\n    \\mu = J^{-1} h\n\nSee :class:`walksum.Graph`, :meth:`walksum.GLT.save`, :func:`_x`."
    )
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in text
    assert "[`Graph`](Graph.md)" in text
    assert "[`GLT.save`](GLT.md)" in text
    assert "`_x`" in text
    assert not re.search(r":\w+:`|\.\. math", text)
    assert translated("A.\n\nExample:\n    >>> 1\n    1") == "A.\n\nExamples:\n    >>> 1\n    1"  # drawn as code


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_from_the_root_lead_to_files(page):
    found = LINK.findall((ROOT / page).read_text())
    assert {link for link in found if not (ROOT / link).exists()} == set()


def test_a_broken_link_ends_make_docs(tmp_path):
    """By the very words of the Makefile, on a site of one page."""
    pytest.importorskip("mkdocs")
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text("site_name: one page\n")
    for text, code in (("# Here", 0), ("# Here\n\n[there](there.md)", 1)):
        (tmp_path / "docs" / "index.md").write_text(text)
        done = subprocess.run([sys.executable, "-m", "mkdocs", *WORDS], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == code, done.stderr


@pytest.mark.slow
def test_the_site_builds_and_needs_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", *WORDS, "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img|source)[^>]+(?:src|href)="(https?://[^"]+)"', page.read_text())
        assert [each for each in loaded if "canonical" not in each] == [], page
    for name in ws.__all__:
        text = (tmp_path / "api" / name / "index.html").read_text()
        assert f"ws.{name}" in text
        assert not re.search(r":(class|func|meth|math):`", text), name
        if name not in ws._MODULES:
            assert '<span class="gp">&gt;&gt;&gt; </span>' in text, name  # its example, as code
