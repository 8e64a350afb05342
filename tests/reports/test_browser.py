"""Reports in a real browser: nothing fails, nothing is fetched, every figure is seen, on a telephone as on paper.

Pictures of all pages are kept in ``test-artefacts/reports``. Without Debian's chromium and chromium-driver it skips.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale

import widemargin
from tests.reports.test_network_page import NOW, a_network, line
from widemargin.data import make_sparse_gaussians
from widemargin.reports import network_report

pytest.importorskip("matplotlib", reason="needs the plot extra")
webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
pytestmark = pytest.mark.xdist_group("browser")  # one browser at a time

ARTEFACTS = Path(__file__).resolve().parents[2] / "test-artefacts" / "reports"
SIZES = {"phone": (390, 844), "desktop": (1280, 900)}
FIGURES = """
return [...document.querySelectorAll('figure svg')].map(each => {
  const box = each.getBoundingClientRect();
  const drawn = [...each.querySelectorAll('path, use, text')].filter(part => part.getBoundingClientRect().width > 0);
  return [box.left, box.right, box.width, box.height, drawn.length];
});
"""


@pytest.fixture(scope="module")
def browser():
    paths = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if None in paths:
        pytest.skip("no browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = paths[0]
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(paths[1]))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


def cancer():
    data = load_breast_cancer()
    return scale(data.data), np.where(data.target == 1, "benign", "malignant")


def with_rows(model, X, y):
    return widemargin.report(model.fit(X, y), X, y)


def hostile():
    X, _ = cancer()
    y = np.where(X[:, 0] > 0, "<img src=http://example.invalid/a.png onerror=alert(1)>", "<script>alert(1)</script>")
    return with_rows(widemargin.SparseSVC(), X, y)


def of_peers():
    faults = widemargin.Faults(drop=0.2, crash={4: 10})
    return with_rows(widemargin.GossipSVC(alpha=1e-2, n_peers=12, faults=faults), *cancer())


def of_logs():
    """Three peers with names, of which one is killed and excluded."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{k}.log" for k in a_network()]
        for path, lines in zip(paths, a_network().values(), strict=True):
            path.write_text(lines, encoding="utf8")
        about = {"member": 3, "name": "<b>North</b> Hospital", "why": "two records of one number"}
        with paths[0].open("a", encoding="utf8") as file:
            file.write(line("excluded", 1, -3, **about) + "\n")
        return network_report(paths, now=NOW)


PAGES = {
    "hard": lambda: with_rows(widemargin.HardMarginSVC(), load_iris().data, load_iris().target == 0),
    "nu": lambda: with_rows(widemargin.NuMarginSVC(solver="saddle", random_state=0, cluster=2), *cancer()),
    "kernel": lambda: with_rows(make_pipeline(StandardScaler(), widemargin.KernelSVC(C=10)), *cancer()),
    "search": lambda: with_rows(make_pipeline(StandardScaler(), widemargin.KernelSVCCV()), *cancer()),
    "margin-distribution": lambda: with_rows(widemargin.MarginDistributionSVC(C=100), *cancer()),
    "sparse": lambda: with_rows(widemargin.SparseSVC(), *cancer()),
    "debiased": lambda: with_rows(
        widemargin.DebiasedSparseSVC(cluster=2), *make_sparse_gaussians(2000, 40, random_state=0)[:2]
    ),
    "gossip": of_peers,
    "ten-classes": lambda: with_rows(widemargin.KernelSVC(), *load_digits(return_X_y=True)),
    "no-rows": lambda: widemargin.report(widemargin.KernelSVC(C=10).fit(*cancer())),
    "hostile": hostile,
    "network-of-logs": of_logs,
}


def shown(browser, path, size):
    """Open a page on such a screen, in light colours; the log is empty before."""
    width, height = SIZES[size]
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "phone"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    prefer(browser, "light")
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(path.as_uri())


def prefer(browser, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def picture(browser, size, path):
    height = browser.execute_script("return document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": SIZES[size][0], "height": height, "scale": 1}
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    path.write_bytes(base64.b64decode(taken["data"]))


def requests(browser):
    """Addresses that were asked for since the log was last read, without what a page carries within it."""
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [each["params"]["request"]["url"] for each in sent if each["method"] == "Network.requestWillBeSent"]
    return [url for url in urls if not url.startswith("data:")]


def colours(browser):
    """Of the paper, and of all letters within figures."""
    return browser.execute_script("""
    const letters = [...document.querySelectorAll('figure svg text')].map(each => getComputedStyle(each).fill);
    return [getComputedStyle(document.body).backgroundColor, [...new Set(letters)].sort().join()];
    """)


@pytest.mark.parametrize("name", PAGES)
def test_a_report_is_seen_as_it_should_be(browser, name):
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    made = PAGES[name]()
    path = made.save(ARTEFACTS / f"{name}.html")
    for size, (width, _) in SIZES.items():
        shown(browser, path, size)
        assert requests(browser) == [path.as_uri()]
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        figures = browser.execute_script(FIGURES)
        assert len(figures) == made.html.count("<figure>")
        for left, right, wide, high, n_drawn in figures:
            assert 0 <= left < right <= width
            assert wide > 250
            assert high > 40
            assert n_drawn > 5
        light = colours(browser)
        picture(browser, size, ARTEFACTS / f"{name}-{size}-light.png")
        prefer(browser, "dark")
        paper, letters = colours(browser)
        assert paper != light[0]
        assert letters != light[1] or not figures
        picture(browser, size, ARTEFACTS / f"{name}-{size}-dark.png")
        assert browser.get_log("browser") == []
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    (ARTEFACTS / f"{name}.pdf").write_bytes(pdf)
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 10_000
    print(f"{name}: pictures in {os.path.relpath(ARTEFACTS)}")


def test_a_phone_shows_the_points_of_a_search_up_to_their_states(browser, tmp_path):
    shown(browser, PAGES["search"]().save(tmp_path / "search.html"), "phone")
    place = "[each.innerText, each.getBoundingClientRect().right]"
    heads = browser.execute_script(f"return [...document.querySelectorAll('#search th')].map(each => {place})")
    assert dict(heads)["state"] <= SIZES["phone"][0]


def test_the_watch_sees_errors_requests_and_pages_too_wide(browser, tmp_path):
    path = tmp_path / "bad.html"
    wide = "<div style='width:900px'>x</div>"
    path.write_text(f"<!DOCTYPE html><img src='missing.png'>{wide}<script>throw Error('no')</script>", encoding="utf8")
    shown(browser, path, "phone")
    assert len(requests(browser)) == 2
    assert any("no" in entry["message"] for entry in browser.get_log("browser"))
    assert browser.execute_script("return document.documentElement.scrollWidth") > 390


def test_in_a_notebook_it_stands_in_a_frame_and_below_a_diagram(browser, tmp_path):
    X, y = cancer()
    model = widemargin.KernelSVC().fit(X, y)
    frame = widemargin.report(model, X, y)._repr_html_()
    path = tmp_path / "notebook.html"
    path.write_text(f"<!DOCTYPE html><meta charset='utf-8'>{model._repr_html_()}{frame}", encoding="utf8")
    shown(browser, path, "desktop")
    picture(browser, "desktop", ARTEFACTS / "notebook.png")
    table = browser.find_element("css selector", ".widemargin-fit")
    assert table.is_displayed()
    assert "best possible" in table.text
    browser.switch_to.frame(browser.find_element("tag name", "iframe"))
    assert len(browser.execute_script(FIGURES)) >= 1
    browser.switch_to.default_content()
