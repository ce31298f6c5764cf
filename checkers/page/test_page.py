"""Drops golden histories on the page in a headless Chromium, and checks the findings that the page shows."""

import base64
import gzip
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

GOLDEN = pathlib.Path(__file__).parent.parent / "tests" / "golden"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DROP = """
<script>
(async () => {
  await ready;
  const told = [];
  for (const [name, base64] of %s) {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const dropped = new DataTransfer();
    dropped.items.add(new File([bytes], name));
    document.dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, cancelable: true }));
    const answer = document.getElementById("answer");
    while (!answer.querySelector("h2") || !answer.querySelector("h2").textContent.startsWith(name)) {
      await new Promise((done) => setTimeout(done, 10));
    }
    const images = [...answer.querySelectorAll("img")];
    await Promise.all(images.map((image) => image.decode()));
    told.push({ name, text: answer.innerText, widths: images.map((image) => image.naturalWidth) });
  }
  const end = document.createElement("pre");
  end.id = "told";
  end.textContent = JSON.stringify(told);
  document.body.append(end);
})();
</script>
"""


def histories():
    """Returns every golden history with its expected verdict, one of them compressed, and a text that is no history."""
    for path in sorted(GOLDEN.glob("*.jsonl")):
        expected = json.loads(path.read_text().split("\n", 1)[0]).get("expected")
        if expected:
            yield path.name, path.read_bytes(), expected
    first = next(path for path in sorted(GOLDEN.glob("*.jsonl")))
    expected = json.loads(first.read_text().split("\n", 1)[0])["expected"]
    yield "compressed.jsonl.gz", gzip.compress(first.read_bytes()), expected
    yield "none.jsonl", b"neither JSON nor EDN\n", None


def browser():
    return next((found for found in map(shutil.which, BROWSERS) if found), None)


def main(page):
    if not browser():
        print("check-page: no Chromium here (scripts/provide-browser): nothing was dropped on the page")
        return
    dropped = list(histories())
    files = json.dumps([(name, base64.b64encode(data).decode()) for name, data, _ in dropped])
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "check.html"
        copy.write_text(pathlib.Path(page).read_text() + DROP % files)
        command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=120000"]
        shown = subprocess.run([*command, copy.as_uri()], capture_output=True, text=True, timeout=300, check=True).stdout
    told = re.search(r'<pre id="told">(.*?)</pre>', shown, re.DOTALL)
    assert told, "the page did not come to an end:\n" + shown[-3000:]
    told = {answer["name"]: answer for answer in json.loads(html.unescape(told[1]))}
    drawn = 0
    for name, _, expected in dropped:
        text, widths = told[name]["text"], told[name]["widths"]
        if expected is None:
            assert "none.jsonl" in text and "HL001" not in text, text
            continue
        for property, verdict in expected.items():
            found = re.search(rf"^{property}\t[a-z ]+\t(\S+)", text, re.MULTILINE)
            # A class may follow; `any` allows every verdict.
            verdict = verdict.split()[0]
            assert verdict == "any" or found and found[1] == verdict, f"{name}: {property} is {found and found[1]} and not {verdict}\n{text}"
        assert all(width > 100 for width in widths), f"{name}: {widths}"
        drawn += len(widths)
    assert drawn > 20, f"{drawn} drawings"
    print(f"check-page: {len(dropped)} files were dropped on the page, {drawn} violations were drawn: as expected")


if __name__ == "__main__":
    main(sys.argv[1])
