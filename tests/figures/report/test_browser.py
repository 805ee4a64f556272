"""The report in a real browser: nothing asked of a network, no error, filters, the graph, no JavaScript, print, axe."""

import os
import shutil

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PHONE = {"width": 390, "height": 844}
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser is installed: none of {', '.join(BROWSERS)}")
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found, args=options)
        yield started
        started.close()


@pytest.fixture
def visit(browser, text, tmp_path):
    """visit(..., change=...): the page in a new window with these options, and what it complains of."""
    contexts = []

    def go(change=lambda text: text, **options):
        file = tmp_path / "report.html"
        file.write_text(change(text), encoding="utf-8")
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "offline": True} | options))
        window, complaints = contexts[-1].new_page(), []
        window.on("console", lambda message: complaints.append(message.text))
        window.on("pageerror", lambda error: complaints.append(str(error)))
        window.on("request", lambda request: complaints.append(request.url) if _outside(request.url) else None)
        window.goto(file.as_uri())
        return window, complaints

    yield go
    for context in contexts:
        context.close()


def _outside(url):
    return not url.startswith(("file:", "data:"))


def shown(window):
    return window.locator("#claims tbody tr:visible th").all_inner_texts()


def serious(window, part=None):
    found = Axe().run(window, part).response["violations"]
    return [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found if v["impact"] in SERIOUS]


def test_filters_graph_and_proofs_work_without_a_complaint(visit):
    window, complaints = visit()
    assert len(shown(window)) == 4
    for name, value, rows in (
        ("verdict", "holds", ["T15"]),
        ("source", "ours", ["T15"]),
        ("attention", "iha", ["P-mixing-parameters"]),
        ("words", "predicate", ["E1"]),
    ):
        box = window.locator(f".filters [name={name}]")
        (box.fill if name == "words" else box.select_option)(value)
        assert shown(window) == rows
        assert window.locator(".filters output").inner_text() == f"{len(rows)} of 4 statements"
        (box.fill if name == "words" else box.select_option)("")
    panel = window.locator("#panel")
    window.locator("#graph a[data-name='E1']").click()
    assert panel.is_visible()
    assert window.locator("#panel-title").inner_text() == "E1"
    for part in ("does not hold as printed", "Smallest counterexample: modulus = 2, coefficient = 5", "Repaired:"):
        assert part in panel.inner_text()
    window.keyboard.press("Escape")
    assert not panel.is_visible()
    window.mouse.move(0, 0)
    node = window.locator("#graph a[data-name='injective']")
    node.focus()
    assert window.locator(".arcs path.up[data-user=injective]").count() == 2
    window.keyboard.press("Enter")
    assert window.locator("#panel-title").inner_text() == "injective"
    panel.get_by_role("link", name="T15", exact=True).click()
    assert window.locator("#panel-title").inner_text() == "T15"
    panel.get_by_role("link", name="docs/cpm3.md, Theorem 1").click()
    assert not panel.is_visible()
    assert window.locator("h4", has_text="the layer must carry the whole sequence").is_visible()
    assert window.locator("#proofs math").count() > 20
    assert complaints == []


@pytest.mark.parametrize(
    "options", [{"color_scheme": "light"}, {"color_scheme": "dark", "viewport": PHONE}], ids=["light", "dark, phone"]
)
def test_axe_finds_nothing_serious(visit, options):
    window, _ = visit(**options)
    for summary in window.locator("details summary").all()[::5]:
        summary.click()
    assert serious(window) == []
    window.locator("#claims a", has_text="E1").first.click()
    assert serious(window, "#panel") == []
    window.keyboard.press("Escape")
    assert window.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_checks_can_fail(visit):
    """What axe and the window's complaints are for is found where it is put in."""
    window, complaints = visit(lambda text: text.replace('alt="', 'class="').replace("</body>", "<script>x()</script>"))
    assert any("image-alt" in line for line in serious(window, "#pictures"))
    assert any("x is not defined" in line for line in complaints)
    window, complaints = visit(lambda text: text.replace("</body>", '<img src="http://localhost:9/a.png" alt="">'))
    assert any("localhost" in line for line in complaints)


def test_it_prints(visit):
    window, _ = visit(color_scheme="dark")
    window.emulate_media(media="print")
    assert window.evaluate("getComputedStyle(document.body).color") == "rgb(28, 31, 35)"  # dark on white
    assert not window.locator(".filters").is_visible()
    assert len(shown(window)) == 4
    printed = window.pdf(print_background=True)
    assert printed.startswith(b"%PDF")
    assert len(printed) > 50_000


def test_it_can_be_read_without_javascript(visit):
    window, complaints = visit(java_script_enabled=False)
    assert len(shown(window)) == 4
    assert not window.locator(".filters").is_visible()
    assert not window.locator("#panel").is_visible()
    evidence = window.locator("#node-E1")
    assert not evidence.is_visible()
    window.locator("#graph a[data-name='E1']").click()  # the browser opens what the link leads to
    assert "Smallest counterexample" in evidence.inner_text()
    assert complaints == []
