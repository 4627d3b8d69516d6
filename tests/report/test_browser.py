"""The pages in a real Chromium, opened from disk."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import pamc
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.columns.frames import raw_table
from pamc.data.customers import make_customers
from pamc.data.rows import table_graph
from pamc.errors import DataWarning
from pamc.report.comparison import comparison_data
from pamc.report.content import Extras, page_data
from pamc.report.page_file import read_page, write_page
from tests.report.made import HOSTILE, made_model, made_page, made_record

# One worker has the browser: two would install it at the same time.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

WITH_GL = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
WITHOUT_GL = ("--no-sandbox", "--disable-gpu", "--disable-3d-apis")
READY = "html[data-ready]"


@pytest.fixture(scope="module")
def play():
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with playwright.sync_playwright() as running:
        yield running


@pytest.fixture(scope="module", params=[WITH_GL, WITHOUT_GL], ids=["webgl", "canvas"])
def browser(request, play, chromium):
    launched = play.chromium.launch(executable_path=chromium, args=list(request.param))
    launched.drawing = "GLPoints" if request.param is WITH_GL else "CanvasPoints"
    yield launched
    launched.close()


@pytest.fixture(scope="module")
def one_browser(play, chromium):
    launched = play.chromium.launch(executable_path=chromium, args=list(WITH_GL))
    yield launched
    launched.close()


@pytest.fixture
def opened(one_browser, request):
    """Return a function that opens a page from disk, and fail where it says an error or asks for anything."""
    errors, requests, contexts = [], [], []

    def open_page(path, *, width=1400, height=1000, dark=False, browser=None, **options):
        scheme = "dark" if dark else "light"
        context = (browser or one_browser).new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "request", lambda sent: requests.append(sent.url) if not sent.url.startswith(("file:", "data:")) else None
        )
        # WebGL that is computed counts here too.
        page.goto(f"{path.as_uri()}?any-webgl")
        page.wait_for_selector(READY)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []
    assert requests == []


def written(path, data):
    write_page(path, data)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def report(folder):
    ids = np.array([f"row {i}" for i in range(300)])
    columns = {"city": np.array(["Rome", "Oslo", "Lima"])[np.arange(300) % 3], "age": np.arange(300.0)}
    extras = Extras(map_by="pca", columns=columns, class_names=[f"kind {c}" for c in "abcde"])
    return written(folder / "report.html", made_page(ids=ids, names=tuple("abcdefghijkl"), extras=extras))


@pytest.fixture(scope="module")
def many(folder):
    """A page of more clusters than fit side by side."""
    return written(folder / "many.html", made_page(n_nodes=600, n_clusters=25))


@pytest.fixture(scope="module")
def hostile(folder):
    names = (*HOSTILE, "plain")
    ids = np.array([*HOSTILE, *(f"row {i}" for i in range(300 - len(HOSTILE)))], dtype=object)
    columns = {name: np.resize(np.array(HOSTILE, dtype=object), 300) for name in HOSTILE[:3]}
    extras = Extras(map_by="pca", columns=columns, class_names=HOSTILE[:5], notes=(HOSTILE[0],))
    data = made_page(ids=ids, names=names, extras=extras)
    data["title"] = HOSTILE[1]
    data["record"]["command"] = f"pamc fit {HOSTILE[0]}"
    return written(folder / "hostile.html", data)


@pytest.fixture(scope="module")
def comparison(folder):
    ids = np.array([f"row {i}" for i in range(300)])
    runs = [made_page(ids=ids), made_page(ids=ids, n_clusters=6, seed=1)]
    return written(folder / "comparison.html", comparison_data(runs, ["first", "second"]))


def place_of(page, row):
    """Return where a row is on the screen."""
    box = page.locator("canvas.over").first.bounding_box()
    x, y = page.evaluate(f"pamc.page.map.spot({row})")
    return box["x"] + x, box["y"] + y


def pressed(page):
    return page.evaluate(
        """[...document.querySelectorAll(".chips [aria-pressed=true]")].map((b) => b.dataset.filter)"""
    )


def test_the_map_is_drawn_and_a_row_is_named_where_the_pointer_is(opened, report, browser):
    page = opened(report, browser=browser)
    assert page.evaluate("pamc.page.map.points.constructor.name") == browser.drawing
    page.locator("#map").scroll_into_view_if_needed()
    page.mouse.move(*place_of(page, 17))
    page.wait_for_selector(".tip:not([hidden])")
    named = page.evaluate("pamc.page.map.hovered")
    assert page.locator(".tip strong").text_content() == f"row {named}"
    # Of rows that lie nearly on each other another may be the nearest.
    distance = "(a, b) => Math.hypot(...pamc.page.map.spot(a).map((v, i) => v - pamc.page.map.spot(b)[i]))"
    assert page.evaluate(f"({distance})(17, {named})") < 2
    drawn = """() => {
        const layer = pamc.page.map.layers.at(-1), copy = document.createElement("canvas");
        Object.assign(copy, { width: layer.width, height: layer.height });
        const context = copy.getContext("2d");
        context.drawImage(layer, 0, 0);
        return context.getImageData(0, 0, copy.width, copy.height).data.some((value) => value > 0);
    }"""
    assert page.evaluate(drawn)


@pytest.mark.parametrize("click", [".chip[data-filter='2']", ".card[data-cluster='2'] button[data-filter]", "a point"])
def test_a_cluster_filters_everything_else(opened, report, click):
    page = opened(report)
    if click == "a point":
        page.locator("#map").scroll_into_view_if_needed()
        row = page.evaluate("Array.from(pamc.page.cluster).indexOf(2)")
        page.mouse.click(*place_of(page, row))
        assert page.locator(".row-facts .id").text_content().startswith("row ")
    else:
        page.locator(click).click()
    assert pressed(page) == ["2"]
    assert page.locator(".card:visible").count() == 1
    assert page.evaluate("pamc.page.map.dims.every((dim, i) => (dim === 0) === (pamc.page.cluster[i] === 2))")
    assert set(
        page.locator("#odd tr[data-cluster]:visible").evaluate_all("all => all.map((e) => e.dataset.cluster)")
    ) <= {"2"}
    page.locator(".chip.all").click()
    assert page.locator(".card:visible").count() == 5
    page.locator(".chip[data-filter='1']").click()
    page.locator(".chip[data-filter='3']").click(modifiers=["Shift"])
    assert pressed(page) == ["1", "3"]


def test_a_row_is_found_by_its_id(opened, report):
    page = opened(report)
    page.get_by_label("Find a row").fill("row 123")
    assert page.locator("#found button").count() == 1
    page.locator("#found button").click()
    assert page.locator(".row-facts .id").text_content() == "row 123"
    assert page.evaluate("pamc.page.map.lit") == 123
    assert "city" in page.locator(".row-facts").text_content()
    page.get_by_label("Find a row").fill("no such row")
    assert "No row" in page.locator("#found").text_content()
    assert page.evaluate("pamc.page.map.lit") is None


def test_a_row_that_was_searched_for_goes_with_the_search_and_one_that_was_clicked_stays(opened, report):
    page = opened(report)
    search = page.get_by_label("Find a row")
    search.fill("row 123")
    assert page.evaluate("pamc.page.map.lit") == 123
    search.fill("")
    assert page.evaluate("pamc.page.map.lit") is None
    search.fill("row 123")
    page.locator("#found button").click()
    search.fill("")
    assert page.evaluate("pamc.page.map.lit") is None
    assert page.locator(".row-facts .id").count() == 0
    page.locator(".card .members button").first.click()
    kept = page.evaluate("pamc.page.map.lit")
    search.fill("row 123")
    assert page.evaluate("pamc.page.map.lit") == 123
    search.fill("")
    assert page.evaluate("pamc.page.map.lit") == kept
    assert page.locator(".row-facts .id").count() == 1


def odd_table(**columns):
    """Return a table of odd rows of which only some columns matter."""
    n_rows = len(columns["row"])
    usual = {"cluster": [0] * n_rows, "confidence": [0.5] * n_rows, "feature": [""] * n_rows, "value": [2.0] * n_rows}
    return {**usual, "id": [f"row {row}" for row in columns["row"]], **columns}


def test_where_no_row_is_odd_the_page_praises_nothing(opened, folder):
    data = made_page()
    data["odd"] = odd_table(row=[], reason=[])
    page = opened(written(folder / "none_odd.html", data))
    assert "no row stands out from the others" in page.locator("#odd").text_content()
    assert "not measured" in page.locator(".headline").text_content()
    data["clusters"]["confidence"] = [0.64] * 5
    data["record"]["facts"] |= {"confidence": "agreement of half fits", "confidence_error": 0.02}
    page = opened(written(folder / "unsure.html", data))
    assert "mean confidence is low (0.64)" in page.locator("#sure").text_content()


def test_an_extreme_value_is_named_with_its_feature_and_a_filter_says_where_none_is_odd(opened, folder):
    data = made_page()
    reasons = ["extreme value", "isolated"]
    data["odd"] = odd_table(row=[7, 8], reason=reasons, feature=[HOSTILE[0], ""], cluster=[1, 1], value=[8e10, 0.0])
    page = opened(written(folder / "odd.html", data))
    cells = page.locator("#odd tbody tr").first.locator("td").all_text_contents()
    assert cells[3] == f"extreme value of {HOSTILE[0]}"
    assert "times as far from the median" in cells[4]
    assert page.evaluate("window.broken") is None
    page.locator(".chip[data-filter='2']").click()
    assert not page.locator("#odd table").is_visible()
    assert page.locator("#odd p:visible").last.text_content() == "None in cluster 2."
    page.locator(".chip[data-filter='3']").click(modifiers=["Shift"])
    assert page.locator("#odd p:visible").last.text_content() == "None in the selected clusters."
    page.locator(".chip[data-filter='1']").click()
    assert page.locator("#odd tbody tr:visible").count() == 2
    assert "None in" not in page.locator("#odd").text_content()


@pytest.mark.parametrize("n_clusters", [5, 45], ids=["table", "pairs"])
def test_a_filter_dims_the_lines_of_other_clusters(opened, folder, n_clusters):
    page = opened(written(folder / f"clusters_{n_clusters}.html", made_page(n_nodes=900, n_clusters=n_clusters)))
    lines = page.locator("#relations tbody tr")
    chosen = lines.first.locator(".dot").first.text_content()
    page.locator(f".chip[data-filter='{chosen}']").click()
    for line in lines.all():
        of = line.locator("th .dot, td .dot").all_text_contents()
        assert ("off" in (line.get_attribute("class") or "")) == (chosen not in of)


def test_curves_are_explained_as_what_they_are(opened, folder):
    data = made_page()
    data["history"]["center_distance"] = [0.1, 0.2, 0.3, 0.4]
    page = opened(written(folder / "curves.html", data))
    curves = {panel.locator("h4").text_content(): panel for panel in page.locator(".curve").all()}
    assert "from the mean of its cluster's rows" in curves["center distance"].text_content()
    # Before the first epoch there is nothing to compare with.
    label = curves["changed"].locator("svg").get_attribute("aria-label")
    assert label == "changed: from 0.1 to 0 in epochs 2 to 4, between 0 and 0.1"
    assert "epoch 2" in curves["changed"].text_content()
    assert "in epochs 1 to 4" in curves["loss"].locator("svg").get_attribute("aria-label")


def test_repeats_have_their_error_beside_them(opened, folder):
    data = made_page()
    repeat = {"what": "Fits of half of the rows", "value": 0.9, "error": 0.02, "meaning": "share"}
    data["stability"] = [repeat]
    page = opened(written(folder / "repeats.html", data))
    assert page.locator("#stability tbody td").all_text_contents() == [
        "Fits of half of the rows",
        "0.9 ± 0.02",
        "share",
    ]


def test_one_thing_is_said_in_the_singular(opened, folder):
    data = made_page()
    data["record"]["data"]["n_features"] = 1
    page = opened(written(folder / "one.html", data))
    assert "1 column" in page.locator(".lede").text_content()
    assert "1 columns" not in page.locator(".lede").text_content()


@pytest.fixture
def customers(folder):
    """Return the path of a page about columns with units: two clusters, of which a few rows are not clear."""
    draw = np.random.default_rng(0)
    labels = np.repeat([0, 1], [150, 50])
    model = made_model(200, 2)
    model.labels_ = labels
    model.embedding_ = model.cluster_centers_[labels] + draw.normal(size=(200, 8))
    model.confidence_ = np.where(np.arange(200) % 10 == 0, 0.5, 0.95)
    income = np.where(labels == 1, 71_234.5, 36_543.2) + draw.normal(scale=900, size=200)
    age, member = 40 + draw.normal(scale=9, size=200), (np.arange(200) % 4 < np.where(labels == 1, 3, 1)).astype(float)
    noise = draw.normal(size=200)
    features = np.column_stack([income, age, member, noise - noise.mean()])
    graph = AttributedGraph(features, feature_names=("income", "age", "member", "noise"), name="customers")
    facts = {"confidence": "agreement of half fits", "confidence_error": 0.02, "preprocessing": "standardize"}
    record = made_record(model, facts=facts, metrics=None)
    return written(folder / "customers.html", page_data(model, graph, record, Extras(map_by="pca")))


def test_the_page_says_first_in_plain_words_what_was_found(opened, customers):
    page = opened(customers)
    assert page.locator(".headline").text_content() == (
        "2 clusters in 200 rows. 90 % of the rows clearly belong to their cluster; clusters 0 and 1 blend the most."
    )
    sections = page.locator("main > section").evaluate_all("all => all.map((s) => s.id)")
    assert sections == ["clusters", "map", "sure", "odd", "technical"]
    card = page.locator(".card[data-cluster='1']")
    assert card.locator("h3 bdi").text_content() == "high income, mostly member"
    assert "50 rows, 25.0 % of all" in card.text_content()
    values = card.locator(".bars .value").all_text_contents()
    assert re.fullmatch(r"mean 71,\d00 against 45,\d00 in all rows", values[0])
    assert re.fullmatch(r"7\d % of its rows, 3\d % of all rows", values[1])
    assert not re.search(r"e-\d|standard|NaN", page.locator("#clusters").text_content())
    assert "20 rows, 10 % of the two, are unclear" in page.locator("#sure").text_content()
    plain = "".join(page.locator(f"#{name}").text_content() for name in sections[:-1])
    for jargon in ("silhouette", "modularity", "meta-node", "embedding", "epoch", "NMI"):
        assert jargon not in plain.lower()


def test_technical_details_are_closed_and_a_link_opens_them(opened, customers):
    page = opened(customers)
    assert not page.locator("#scores").is_visible()
    page.locator("#contents a", has_text="Technical details").click()
    page.locator("#scores").wait_for(state="visible")
    assert "silhouette in the features" in page.locator("#scores").text_content()
    assert "silhouette in the embedding" in page.locator("#scores").text_content()


def test_pages_name_the_version_that_wrote_them(opened, report, comparison):
    for path in (report, comparison):
        assert f"Written by pamc {pamc.__version__} on" in opened(path).locator("#bottom").text_content()


def test_colors_switch_between_cluster_confidence_and_columns(opened, report):
    page = opened(report)
    seen = [page.evaluate("Array.from(pamc.page.map.rgb.slice(0, 60))")]
    options = page.locator("#coloring option").evaluate_all("all => all.map((o) => o.textContent)")
    assert options[:5] == ["cluster", "confidence", "true class", "city", "age"]
    for name in ("confidence", "true class", "city", "age"):
        page.get_by_label("Color by").select_option(label=name)
        seen.append(page.evaluate("Array.from(pamc.page.map.rgb.slice(0, 60))"))
        legend = page.locator(".legend").text_content()
        assert {"city": "Oslo", "age": "299", "true class": "kind a", "confidence": "0."}[name] in legend
    assert len({json.dumps(colors) for colors in seen}) == 5


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("which", ["report", "many", "hostile", "comparison"])
def test_nothing_sticks_out_sideways(opened, request, which, width):
    page = opened(request.getfixturevalue(which), width=width, height=844)
    page.locator("details").evaluate_all("all => all.forEach((d) => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Return the page of a table of mixed types with a hostile category."""
    columns = make_customers(200).columns
    columns["city"] = np.array([HOSTILE[i % len(HOSTILE)] for i in range(200)], dtype=object)
    with pytest.warns(DataWarning):
        graph = table_graph(raw_table(pd.DataFrame(columns)))
    model = made_model(200, 3)
    record = made_record(model, facts={"preprocessing": "variables", "graph": "not used"})
    return written(
        tmp_path_factory.mktemp("mixed") / "report.html", page_data(model, graph, record, Extras(map_by="pca"))
    )


def test_a_profile_is_shown_and_copied_with_the_clusters_that_are_selected(opened, mixed):
    page = opened(mixed)
    heads = page.locator("#profile thead th:visible")
    assert heads.count() == 5
    assert page.evaluate("window.broken") is None
    page.locator('.chip[data-filter="1"]').click()
    assert heads.count() == 3
    page.locator("#profile .copy").click()
    page.get_by_text("Copied", exact=True).wait_for()


def test_the_cells_of_listed_rows_are_those_of_the_table(opened, mixed):
    page = opened(mixed)
    card = page.locator(".card").first
    card.get_by_text("Values of these rows").click()
    lines = card.locator("table.cells tbody tr")
    assert lines.count() == 10
    cells = read_page(mixed, formats=("pamc-report",))["cells"]
    first = lines.first.locator("td").first.inner_text()
    wanted = [cell for name, cell in zip(cells["id"], cells["cell"], strict=True) if name == first]
    shown = lines.first.locator("td").all_inner_texts()[1:]
    assert [text == "" for text in shown] == [cell == "" for cell in wanted]


def test_names_are_shown_as_text_and_break_nothing(opened, hostile):
    page = opened(hostile)
    assert page.evaluate("window.broken") is None
    assert page.locator("main img, main script, main b").count() == 0
    assert page.locator("h1").text_content() == HOSTILE[1]
    for name in (HOSTILE[0], HOSTILE[4], HOSTILE[5]):
        page.get_by_label("Find a row").fill(name)
        assert page.locator("#found button").first.text_content() == name
    page.get_by_label("Find a row").fill("x" * 300)
    long = page.locator("#found button bdi")
    assert len(long.text_content()) < 100
    assert long.get_attribute("title") == "x" * 10_000
    page.locator("#found button").click()
    assert HOSTILE[0] in page.locator("#repeat pre").first.text_content()
    names = page.locator(".bars .name bdi").evaluate_all("all => all.map((e) => e.title || e.textContent)")
    assert set(names) <= {*HOSTILE, "plain"}


def test_the_page_can_be_used_by_keyboard(opened, report):
    page = opened(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator(".chip[data-filter='0']").focus()
    page.keyboard.press("Enter")
    assert pressed(page) == ["0"]
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.locator("canvas.over").focus()
    before = page.evaluate("[pamc.page.map.zoom, ...pamc.page.map.shift]")
    for key in ("+", "ArrowLeft"):
        page.keyboard.press(key)
    assert page.evaluate("[pamc.page.map.zoom, ...pamc.page.map.shift]") != before
    page.keyboard.press("0")
    assert page.evaluate("[pamc.page.map.zoom, ...pamc.page.map.shift]") == [1, 0, 0]
    page.keyboard.press("Escape")
    assert pressed(page) == ["all"]


def test_dark_follows_the_system_and_the_toggle_is_remembered(opened, report):
    background = "getComputedStyle(document.body).backgroundColor"
    light, dark = opened(report), opened(report, dark=True)
    assert light.evaluate(background) != dark.evaluate(background)
    light.get_by_role("button", name="Switch to dark colors").click()
    assert light.evaluate(background) == dark.evaluate(background)
    light.reload()
    light.wait_for_selector(READY)
    assert light.evaluate(background) == dark.evaluate(background)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("which", ["report", "hostile", "comparison"])
def test_axe_finds_nothing_serious(opened, request, which, dark):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = opened(request.getfixturevalue(which), dark=dark)
    page.locator("details").evaluate_all("all => all.forEach((d) => { d.open = true; })")
    for prepare in ("pamc.page.select(1)", "pamc.page.select(null)"):
        page.evaluate(prepare)
        found = axe.Axe().run(page).response["violations"]
        bad = [(v["id"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] in ("serious", "critical")]
        assert bad == []


def test_two_runs_are_compared(opened, comparison):
    page = opened(comparison)
    assert page.locator(".maps canvas.over").count() == 2
    page.get_by_label("Find a row").fill("row 12")
    assert "row 12: clusters" in page.locator(".tools").text_content()
    assert page.evaluate("pamc.page.runs.every((run) => run.view.lit === 12)")
    page.locator(".maps").scroll_into_view_if_needed()
    box = page.locator("canvas.over").first.bounding_box()
    x, y = page.evaluate("pamc.page.runs[0].view.spot(5)")
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.wait_for_function("document.querySelectorAll('.tip:not([hidden])').length === 2")
    page.get_by_label("Only rows that changed").check()
    bright = page.evaluate("pamc.page.runs[0].view.dims.filter((dim) => dim === 0).length")
    assert bright == page.evaluate("pamc.page.data.n_changed")
    page.locator(".chip[data-filter='1']").click()
    assert page.locator("#changed tr[data-cluster]:visible").evaluate_all(
        "all => all.every((e) => e.dataset.cluster === '1')"
    )
    assert page.locator("#settings").text_content()


def test_the_choice_of_the_number_of_clusters_is_shown(opened, report):
    page = opened(report)
    assert "5 clusters are the most stable." in page.locator("#count").text_content()
    assert page.locator("#count tr.differs td").first.text_content() == "5"
    assert "more stable than k = 4 is 0.40 ± 0.02." in page.locator("#count").text_content()
    assert "Equally stable but coarser: k = 2, k = 3." in page.locator("#count").text_content()


def test_print_shows_everything_without_controls(opened, report):
    page = opened(report)
    page.emulate_media(media="print")
    assert not page.locator(".filters").is_visible()
    assert page.locator(".card").first.is_visible()
    assert len(page.pdf()) > 10_000


def filter_time(page, cluster):
    """Return milliseconds from the click until the map is drawn again and what it drew can be read."""
    return page.evaluate(
        """(cluster) => new Promise((done) => {
            const began = performance.now(), map = pamc.page.map;
            document.querySelector(`.chip[data-filter="${cluster}"]`).click();
            requestAnimationFrame(() => requestAnimationFrame(() => {
                const { gl } = map.points;
                gl?.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
                done(performance.now() - began);
            }));
        })""",
        cluster,
    )


def test_a_page_of_ordinary_size_is_a_small_file(folder):
    assert written(folder / "ordinary.html", made_page(9298, 10, ids=np.arange(9298))).stat().st_size < 8e6


def test_a_filter_draws_200_000_rows_without_preparing_them_again(opened, folder, browser):
    """Compare with the loading of the same page in the same browser; seconds are in benchmarks/results/report.jsonl."""
    path = written(folder / "many.html", made_page(200_000, 10, edges=False, truth=False))
    page = opened(path, browser=browser)
    loading = float(page.evaluate("document.documentElement.dataset.ready"))
    filter_time(page, 0)
    assert min(filter_time(page, cluster) for cluster in (1, 2, 3)) < loading


def test_more_rows_are_a_density(opened, folder):
    data = made_page(210_000, 4, edges=False, truth=False)
    page = opened(written(folder / "density.html", data))
    assert page.evaluate("pamc.page.n") < 51_000
    total = page.evaluate("pamc.page.density.count.reduce((a, b) => a + b, 0)")
    assert total == 210_000
    page.locator(".chip[data-filter='1']").click()
    page.get_by_label("Color by").select_option(index=2)
    assert page.evaluate("pamc.page.map.showPoints")
