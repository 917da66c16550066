"""Style sheet of the model page, with light and dark mode."""

STYLE = """
:root { --ink: #1c1e21; --soft: #5d646d; --paper: #fcfcfb; --line: #d9dce0; --bar: #3a6ea5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e6e9; --soft: #9aa2ac; --paper: #15171a; --line: #343940; --bar: #6ea3d8; }
}
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: var(--paper); line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1, h2, h3 { line-height: 1.2; overflow-wrap: anywhere; }
h1 { font-size: 1.8rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 0.75rem; }
h3 { font-size: 1.1rem; margin: 0; }
p, small, figcaption, caption { color: var(--soft); }
p { margin: 0.4rem 0; max-width: 45rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.9rem 0.3rem 0; border-bottom: 1px solid var(--line);
  text-align: right; white-space: nowrap; }
th { font-weight: 500; }
th[scope="row"] { text-align: left; }
thead th { color: var(--soft); }
figure { margin: 1rem 0; }
img { max-width: 100%; height: auto; display: block; border-radius: 3px; }
figcaption, caption { font-size: 0.9rem; padding: 0.3rem 0; text-align: left; }
nav ul { display: flex; flex-wrap: wrap; gap: 0.3rem 1.2rem; padding: 0; list-style: none; }
a { color: var(--bar); }
.capsule { border-top: 1px solid var(--line); margin-top: 2rem; padding-top: 1.5rem; }
.sides { display: flex; flex-wrap: wrap; gap: 0 2rem; }
.sides > div { flex: 1 1 22rem; min-width: 0; }
.sides > figure { flex: 0 1 20rem; }
.bars { width: 100%; max-width: 30rem; }
.bars th { color: var(--soft); }
.bars th, .bars td { border: 0; padding: 0.1rem 0.6rem 0.1rem 0; }
.bars td:last-child { width: 100%; padding-right: 0; }
.bar { display: block; height: 0.8rem; min-width: 2px; background: var(--bar); border-radius: 2px; }
"""
