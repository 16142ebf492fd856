"""The HTML page of `relaxvm inspect` and `relaxvm profile`: in a browser, and as text."""

import html.parser
import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from relaxvm import cli
from relaxvm.cli import page

HOSTILE = '</script><script>document.title="taken"</script>&\'"<b>é中\u202e{}'


def layers(count, path, widths=(4, 6), names="/model/layers.{}/block/{}"):
    """A model of `count` times MatMul, Relu, Softmax, saved to `path`."""
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for i in range(count):
        wide = widths[i % len(widths)], widths[(i + 1) % len(widths)]
        values = rng.standard_normal(wide).astype("float32")
        weights.append(numpy_helper.from_array(values, f"w{i}"))
        for kind, inputs in (("MatMul", [f"w{i}"]), ("Relu", []), ("Softmax", [])):
            nodes.append(
                helper.make_node(kind, [x, *inputs], [f"{kind}{i}"], names.format(i, kind))
            )
            x = f"{kind}{i}"
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, wide])
        for name, wide in (("x", widths[0]), (x, widths[count % len(widths)]))
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


class Page(html.parser.HTMLParser):
    """Tags that are open, anchors, links to them, and texts."""

    def __init__(self, path):
        super().__init__()
        self.open, self.anchors, self.links, self.text, self.tags = [], [], [], "", []
        self.feed(path.read_text(encoding="utf-8"))
        assert self.open == []
        assert len(self.anchors) == len(set(self.anchors))
        assert {link.removeprefix("#") for link in self.links} <= set(self.anchors)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.tags.append(tag)
        self.anchors += [named["id"]] if "id" in named else []
        self.links += [named["href"]] if "href" in named else []
        assert "src" not in named
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def written(command, model, path, *options):
    assert cli.main([command, str(model), "--html", str(path), *options]) == 0
    return Page(path)


def test_a_page_leads_from_nodes_to_instructions_kernels_and_machine_code(tmp_path):
    model = tmp_path / "m.onnx"
    layers(2, model)
    for command in ("inspect", "profile"):
        shown = written(command, model, tmp_path / f"{command}.html")
        for text in ("/model/layers.1/block/Relu (Relu)", "R.nn.relu(", "T.prim_func", "define ",
                     "relaxvm_inner_", "FuseOps:", "72 bytes", "instruction"):  # fmt: skip
            assert text in shown.text, text
        assert "rect" in shown.tags
        assert ("GFLOP/s" in shown.text) is (command == "profile")
    assert cli.main(["compile", str(model), "-o", str(tmp_path / "m.rvm")]) == 0
    shown = written("inspect", tmp_path / "m.rvm", tmp_path / "program.html")
    assert "/model/layers.1/block/Relu (Relu)" in shown.text


def test_equal_groups_share_a_kernel_and_keep_their_own_nodes(tmp_path, capsys):
    layers(4, tmp_path / "m.onnx")
    capsys.readouterr()
    assert cli.main(["profile", str(tmp_path / "m.onnx"), "--json", "--runs", "1"]) == 0
    rows = json.loads(capsys.readouterr().out)["nodes"]
    by_kernel = {(r["name"], r["nodes"]) for r in rows if "matmul" in r["name"]}
    assert len(by_kernel) == 4
    assert len({kernel for kernel, _ in by_kernel}) == 2
    assert {nodes for _, nodes in by_kernel} == {
        f"/model/layers.{i}/block/MatMul (MatMul) + /model/layers.{i}/block/Relu (Relu)"
        for i in range(4)
    }


def test_storages_of_sizes_that_calls_decide_stand_in_a_table(tmp_path):
    shown = written("profile", "digits", tmp_path / "p.html", "--runs", "1")
    assert "sizes that calls decide" in shown.text
    assert "3072 * n" in shown.text


def test_machine_code_of_parallel_loops_belongs_to_their_kernel():
    class Program:
        sources = {
            "llvm": "define fastcc void @relaxvm_inner_f.loop0(i64 %b) {\n  body\n}\n\n"
            "define i32 @relaxvm_inner_f(ptr %a) {\n  call\n}\n"
            "define i32 @relaxvm_inner_f1(ptr %a) {\n  other\n}\n"
        }

    texts = page._by_kernel(Program, "llvm")
    assert set(texts) == {"f", "f1"}
    assert "body" in texts["f"]
    assert "call" in texts["f"]
    assert page._by_kernel(Program, "asm") == {}


def test_names_of_any_kind_are_text(tmp_path):
    model = tmp_path / "m.onnx"
    layers(1, model, names=HOSTILE.replace("{}", "{1}") + "x" * 3000)
    shown = written("profile", model, tmp_path / "p.html", "--runs", "1")
    assert HOSTILE.replace("{}", "Relu") in shown.text
    assert shown.tags.count("script") == 1
    assert "b" not in shown.tags


def test_long_texts_are_packed_beyond_a_budget(tmp_path, monkeypatch):
    model = tmp_path / "m.onnx"
    layers(2, model)
    whole = written("inspect", model, tmp_path / "whole.html")
    monkeypatch.setattr(page, "_PLAIN_CHARACTERS", 0)
    packed = written("inspect", model, tmp_path / "packed.html")
    assert "T.prim_func" in whole.text
    assert "T.prim_func" not in packed.text
    assert (tmp_path / "packed.html").stat().st_size < (tmp_path / "whole.html").stat().st_size


def test_ticks_are_round_and_few():
    assert page._ticks(10, 5) == [0, 2, 4, 6, 8, 10]
    assert page._ticks(0, 5) == [0]
    for most in range(1, 3000, 7):
        ticks = page._ticks(most, 10)
        assert 2 <= len(ticks) <= 11
        assert str(ticks[1]).rstrip("0") in {"1", "2", "5"}


# -- in a browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def start():
    """Starts a browser: start(*arguments, **preferences)."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="drives a browser")
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("looks at pages in chromium where it is installed (make browser)")
    browsers = []

    def started(**preferences):
        options = webdriver.ChromeOptions()
        options.binary_location = binary
        for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage",
                         "window-size=1280,900"):  # fmt: skip
            options.add_argument(f"--{argument}")
        options.add_experimental_option("prefs", preferences)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        browsers.append(webdriver.Chrome(options, webdriver.ChromeService(driver)))
        return browsers[-1]

    yield started
    for each in browsers:
        each.quit()


@pytest.fixture(scope="module")
def browser(start):
    return start()


def shown_rows(browser, section):
    """Texts of the rows that are shown in the section with this heading."""
    script = """
    const section = [...document.querySelectorAll("section")].find(
      (each) => each.querySelector("h2").textContent === arguments[0]);
    return [...section.querySelectorAll("tbody tr")].filter((row) => row.checkVisibility())
      .map((row) => [...row.cells].map((cell) => cell.textContent));
    """
    return browser.execute_script(script, section)


def follow(browser, link):
    """Click a link that the script finds; the text of what it led to, if that is shown."""
    browser.execute_script(f"({link}).dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    return browser.execute_script(
        "const there = document.getElementById(location.hash.slice(1));"
        "return there.checkVisibility() && (there.closest('tr') ?? there).innerText"
    )


@pytest.mark.slow
def test_in_a_browser_links_lead_there_and_back(browser, tmp_path):
    model = tmp_path / "m.onnx"
    layers(3, model)
    written("profile", model, tmp_path / "p.html", "--runs", "1")
    browser.get((tmp_path / "p.html").as_uri())
    node = "[...document.querySelectorAll('tr')].find((r) => r.innerText.includes('1/block/Relu'))"
    kernel = follow(browser, f"{node}.cells[3].querySelector('a')")
    assert "called at" in kernel
    opened = "document.getElementById(location.hash.slice(1))"
    for title, text in (("loop function", "T.prim_func"), ("LLVM", "define "), ("assembly", "ret")):
        fold = f"[...{opened}.querySelectorAll('details')].find((d) => d.innerText === {title!r})"
        browser.execute_script(f"const fold = {fold}; fold.querySelector('summary').click()")
        assert text in browser.execute_script(f"return {opened}.innerText")
    instruction = follow(browser, f"{opened}.querySelector('td a')")
    assert "call" in instruction
    assert "layers.1/block/MatMul" in follow(
        browser, f"[...{opened}.closest('tr').querySelectorAll('td:nth-child(3) a')]"
        ".find((a) => a.innerText.includes('layers.1'))"
    )  # fmt: skip
    assert follow(browser, "document.querySelector('svg a')")
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_in_a_browser_tables_are_filtered_and_sorted(browser, tmp_path):
    model = tmp_path / "m.onnx"
    layers(4, model)
    written("profile", model, tmp_path / "p.html", "--runs", "1")
    browser.get((tmp_path / "p.html").as_uri())
    box = browser.find_element("css selector", "input[type=search]")
    box.send_keys("layers.2 (relu)")
    assert [r[0] for r in shown_rows(browser, "Nodes of the model")] == [
        "/model/layers.2/block/Relu (Relu)"
    ]
    box.send_keys(" absent")
    assert shown_rows(browser, "Nodes of the model") == []
    browser.execute_script(
        "arguments[0].value = ''; arguments[0].dispatchEvent(new Event('input'))", box
    )
    assert len(shown_rows(browser, "Nodes of the model")) == 12
    for down in (True, False):
        browser.find_element("xpath", "//section[.//h2='Kernels']//th[.='us']").click()
        times = [float(r[2] or 0) for r in shown_rows(browser, "Kernels")]
        assert times == sorted(times, reverse=down)
    browser.find_element("xpath", "//section[.//h2='Kernels']//th[.='kernel']").click()
    first = [r[0] for r in shown_rows(browser, "Kernels")][0]
    assert first.startswith("fused_matmul")


@pytest.mark.slow
def test_in_a_browser_names_of_any_kind_run_nothing(browser, tmp_path):
    model = tmp_path / "m.onnx"
    layers(1, model, names=HOSTILE.replace("{}", "{1}"))
    written("profile", model, tmp_path / "p.html", "--runs", "1")
    browser.get((tmp_path / "p.html").as_uri())
    assert browser.title == str(model)
    names = [r[0] for r in shown_rows(browser, "Nodes of the model")]
    assert f"{HOSTILE.replace('{}', 'Relu')} (Relu)" in names
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_in_a_browser_packed_texts_are_shown_and_dark_is_dark(browser, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "_PLAIN_CHARACTERS", 0)
    model = tmp_path / "m.onnx"
    layers(1, model, names=HOSTILE)
    written("inspect", model, tmp_path / "p.html")
    browser.get((tmp_path / "p.html").as_uri())
    text = browser.execute_async_script(
        "const [name, done] = arguments;"
        "const fold = [...document.querySelectorAll('details')].find("
        "  (d) => d.querySelector('summary').textContent === name);"
        "fold.open = true;"
        "setTimeout(() => done(fold.querySelector('pre').innerText), 500)",
        "fused",
    )
    assert "T.prim_func" in text
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": "dark"}]},
    )
    colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert colour == "rgb(22, 25, 29)"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.slow
def test_in_a_browser_without_scripts_everything_can_be_read(start, tmp_path):
    model = tmp_path / "m.onnx"
    layers(1, model)
    written("profile", model, tmp_path / "p.html", "--runs", "1")
    browser = start(**{"profile.managed_default_content_settings.javascript": 2})
    browser.get((tmp_path / "p.html").as_uri())
    assert browser.find_elements("css selector", "input") == []
    link = browser.find_element("xpath", "//section[.//h2='Nodes of the model']//tbody//td[4]/a")
    link.click()
    for title in (link.text, "loop function"):
        browser.find_element("xpath", f"//summary[.='{title}']").click()
    assert "T.prim_func" in browser.find_element("css selector", "details[open] details pre").text


@pytest.mark.slow
def test_in_a_browser_a_page_of_two_thousand_nodes_is_small(browser, tmp_path):
    model = tmp_path / "m.onnx"
    layers(670, model, widths=(16, 24, 32, 40))
    written("profile", model, tmp_path / "p.html", "--runs", "1")
    assert (tmp_path / "p.html").stat().st_size < 8e6
    browser.get((tmp_path / "p.html").as_uri())
    assert len(shown_rows(browser, "Nodes of the model")) == 2010
    assert browser.execute_script("return document.querySelectorAll('*').length") < 80_000
    assert browser.get_log("browser") == []
