"""Pages of a computation's stages: one self-contained HTML file with all of them, the differences between them, and the applied rules."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from html import escape
from typing import Any

from ngraph.runtime.dump import CODE, DumpedStage

_NUMBER, _ORIGIN = re.compile(r"%\d+"), re.compile(r"  # .*")


def embedded(data: Any) -> str:
    """Returns data as JSON that is valid inside a script element."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def filled(page: str, **words: str) -> str:
    """Returns a page with these capital words replaced by texts; words inside the texts stay."""
    return re.sub("|".join(rf"\b{word}\b" for word in words), lambda m: words[m[0]], page)


def _said(line: str) -> str:
    """Returns a line without parts that change without meaning: numbers of values, and origins."""
    return _NUMBER.sub("%", _ORIGIN.sub("", line))


def changes(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Returns the lines after, each after a blank or, where it is new, `+`; and removed ones, after `-`."""
    lines = []
    for tag, a, b, c, d in SequenceMatcher(None, list(map(_said, before)), list(map(_said, after))).get_opcodes():
        lines += ["-" + line for line in before[a:b] if tag != "equal"]
        lines += [(" " if tag == "equal" else "+") + line for line in after[c:d]]
    return lines


def page(name: str, stages: Sequence[DumpedStage], first: str | None) -> str:
    """Returns the page of one computation, open at the stage `first`."""
    shown: list[dict[str, Any]] = []
    for k, stage in enumerate(stages):
        lines = stage.text.rstrip("\n").split("\n")
        is_pass = k > 1 and stage.name not in CODE and stage.unit == stages[k - 1].unit  # only one form is compared with itself
        marked = changes(stages[k - 1].text.rstrip("\n").split("\n"), lines) if is_pass else [" " + line for line in lines]
        shown.append({"name": stage.name, "size": stage.size, "rules": dict(stage.rules), "fired": stage.fired, "lines": marked})
    return filled(PAGE, TITLE=escape(name), DATA=embedded({"stages": shown, "first": first}))


def contents(folder: str, found: Mapping[str, tuple[Mapping[str, float], Sequence[DumpedStage]]]) -> str:
    """Returns the page that links the pages of a folder's computations."""
    rows = []
    for name, (seconds, stages) in found.items():
        sizes = {s.name: s.size for s in stages}
        steps = [s.size for s in stages if s.unit == "steps"]
        times = ", ".join(f"{what} {s * 1e3:.1f} ms" for what, s in seconds.items())
        link = f'<a href="{escape(name)}.html">{escape(name)}</a>'
        rows.append(f"<tr><td>{link}<td>{sizes.get('op-graph', 0):,} ops<td>{steps[0]:,} to {steps[-1]:,} steps<td>{times}")
    return filled(CONTENTS, TITLE=escape(folder), ROWS="\n".join(rows))


STYLE = """
:root{color-scheme:light dark;--line:#d5d8dd;--dim:#667;--new:#dff3df;--gone:#f9e0de;--mark:#ffe9a8;--word:#0b5394}
@media(prefers-color-scheme:dark){:root{--line:#444;--dim:#99a;--new:#1e3a22;--gone:#452422;--mark:#5c4a10;--word:#8ab8e8}}
body{font:14px/1.45 system-ui,sans-serif;margin:0}
a{color:var(--word)}
"""

CONTENTS = f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>TITLE</title>
<style>{STYLE}body{{margin:2em}}td{{padding:.2em 1.5em .2em 0}}</style>
<h1>TITLE</h1><p>Every compiled computation, with each of its stages.<table>
ROWS
</table></html>
"""

PAGE = (
    """<!doctype html><html lang="en"><meta charset="utf-8"><title>TITLE</title>
<style>"""
    + STYLE
    + """
body{display:grid;grid-template-columns:15em 1fr;height:100vh}
nav{border-right:1px solid var(--line);overflow:auto;padding:1em}
nav h1{font-size:1.1em;margin:0 0 .6em;overflow-wrap:anywhere}
nav button{display:block;width:100%;text-align:left;font:inherit;padding:.3em .5em;border:0;border-radius:4px}
nav button{background:none;color:inherit;cursor:pointer}
nav button[aria-current=true]{background:var(--mark)}
nav button small{color:var(--dim);float:right}
nav p{color:var(--dim);font-size:.85em}
nav label{display:block;margin-top:.8em;font-size:.9em}
input[type=search]{width:100%;box-sizing:border-box;font:inherit;margin-top:.8em}
main{overflow:auto;padding:1em}
pre{margin:0;width:max-content;min-width:100%;font:12.5px/1.5 ui-monospace,monospace}
pre div{white-space:pre;padding:0 .5em}
.new{background:var(--new)}.gone{background:var(--gone);text-decoration:line-through;color:var(--dim)}
.plain .new{background:none}.plain .gone{display:none}
.from{color:var(--dim)}.op{color:var(--word);font-weight:600}
.v{cursor:pointer}.lit{background:var(--mark)}.hide{display:none}
details{margin:0 0 1em;padding:.5em .8em;border:1px solid var(--line);border-radius:6px}
</style>
<nav><h1>TITLE</h1><div id="stages"></div>
<label><input type="checkbox" id="diff" checked> mark what changed</label>
<input type="search" id="search" placeholder="only lines with …" aria-label="only lines with">
<p>Rest the pointer on a value such as %3 to see where it is made and used. The arrow keys change the stage.</nav>
<main><div id="rules"></div><pre id="text"></pre></main>
<script type="application/json" id="data">DATA</script>
<script>
const {stages, first} = JSON.parse(document.getElementById('data').textContent), $ = id => document.getElementById(id);
const escape = s => s.replace(/[&<>]/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;'}[c]));
let now = Math.max(0, stages.findIndex(s => s.name === first));
function tint(line) {  // a statement: values, the op's name, and where it comes from
  const at = line.search(/  # /), body = escape(at < 0 ? line : line.slice(0, at)), from = at < 0 ? '' : escape(line.slice(at));
  return body.replace(/%\\d+/g, '<span class="v">$&</span>').replace(/ = ([a-z_0-9]+)\\(/, ' = <span class="op">$1</span>(') +
    (from && `<span class="from">${from}</span>`);
}
function show() {
  const s = stages[now], kinds = {' ': '', '+': 'new', '-': 'gone'};
  [...$('stages').children].forEach((b, k) => b.setAttribute('aria-current', k === now));
  const fired = Object.entries(s.rules);
  $('rules').innerHTML = fired.length ? `<details><summary>Rules that fired: ` +
    `${fired.map(([r, n]) => `${n} × <b>${escape(r)}</b>`).join(', ')}</summary>` +
    `<pre>${escape(s.fired)}</pre></details>` : '';
  const wanted = $('search').value.toLowerCase();
  $('text').innerHTML = s.lines.map(l => `<div class="${kinds[l[0]]}${wanted && !l.toLowerCase().includes(wanted) ? ' hide' : ''}">` +
    `${s.name === 'source' ? escape(l.slice(1)) : tint(l.slice(1))}\\n</div>`).join('');
  $('text').className = $('diff').checked ? '' : 'plain';
}
stages.forEach((s, k) => {
  const b = document.createElement('button'), fired = Object.values(s.rules).reduce((a, b) => a + b, 0);
  b.innerHTML = `${escape(s.name)}<small>${s.size}</small>`;
  const unit = s.name === 'op-graph' ? 'ops' : s.name === 'source' ? 'lines' : 'steps';
  b.title = `${s.size} ${unit}${fired ? `, ${fired} rules fired` : ''}`;
  b.onclick = () => { now = k; show(); };
  $('stages').append(b);
});
$('diff').onchange = $('search').oninput = show;
$('text').onmouseover = e => {
  const v = e.target.className === 'v' || e.target.className === 'v lit' ? e.target.textContent : null;
  document.querySelectorAll('.lit').forEach(x => x.classList.remove('lit'));
  if (v) document.querySelectorAll('.v').forEach(x => x.textContent === v && !x.closest('.gone') && x.classList.add('lit'));
};
onkeydown = e => {
  const step = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1}[e.key];
  if (step && e.target.tagName !== 'INPUT') { now = Math.min(stages.length - 1, Math.max(0, now + step)); show(); e.preventDefault(); }
};
show();
</script></html>
"""
)
