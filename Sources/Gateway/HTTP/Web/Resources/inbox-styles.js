// Carillon · inbox-styles.js
// SPDX-License-Identifier: Apache-2.0

const css = `
:host {
  --accent: var(--carillon-accent, light-dark(#93480a, #f2ae62));
  --on-accent: var(--carillon-on-accent, light-dark(#fff, #221404));
  --badge: var(--carillon-badge, light-dark(#b8261b, #ff8d7f));
  --on-badge: var(--carillon-on-badge, light-dark(#fff, #330a05));
  --surface: var(--carillon-surface, light-dark(#fffefc, #1d1b19));
  --raised: var(--carillon-raised, light-dark(#f6f3ee, #282522));
  --text: var(--carillon-text, light-dark(#1f1b16, #f3efe8));
  --muted: var(--carillon-muted, light-dark(#675f54, #b0a799));
  --line: var(--carillon-line, light-dark(#e5dfd4, #3a352f));
  --control: light-dark(#857b6d, #7d7467);
  --danger: light-dark(#a3231a, #ff9b8f);
  --warning: light-dark(#7b5700, #f0c35c);
  --radius: var(--carillon-radius, 14px);
  --shadow: 0 1px 2px rgb(40 26 8 / .08), 0 14px 44px rgb(40 26 8 / .2);
  --focus: 0 0 0 2px var(--surface), 0 0 0 4px var(--accent);
  display: inline-block;
  color-scheme: light dark;
  font: 400 .9375rem/1.45 var(--carillon-font, ui-sans-serif, system-ui, -apple-system, "Segoe UI", "Inter", "Noto Sans", sans-serif);
}
:host([theme="light"]) { color-scheme: light; }
:host([theme="dark"]) { color-scheme: dark; }
:host([view="page"]) { display: block; block-size: 100%; }
*, ::before, ::after { box-sizing: border-box; }
[hidden] { display: none !important; }
h2, h3, h4, p, ul, fieldset, legend { margin: 0; padding: 0; border: 0; font: inherit; }
ul { list-style: none; }
button, input, select { font: inherit; color: inherit; }
button { background: none; border: 0; padding: 0; cursor: pointer; text-align: start; }
button:disabled { cursor: default; }
:focus { outline: none; }
:focus-visible { outline: 2px solid transparent; box-shadow: var(--focus); border-radius: 8px; }
.icon { inline-size: 1.25rem; block-size: 1.25rem; fill: none; stroke: currentColor; stroke-width: 1.7; stroke-linecap: round; stroke-linejoin: round; flex: none; display: block; }
.spoken { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }

.bell { position: relative; display: grid; place-items: center; inline-size: 2.75rem; block-size: 2.75rem; border-radius: 50%; color: var(--carillon-bell, inherit); transition: background-color .15s; }
.bell:hover, .bell[aria-expanded="true"] { background: color-mix(in srgb, currentColor 12%, transparent); }
.bell:focus-visible { border-radius: 50%; box-shadow: 0 0 0 2px currentColor; }
.bell .icon { inline-size: 1.5rem; block-size: 1.5rem; }
.badge { position: absolute; inset-block-start: .1rem; inset-inline-start: 1.45rem; min-inline-size: 1.2rem; padding-inline: .3rem; border-radius: 1rem; background: var(--badge); color: var(--on-badge); font-size: .7rem; font-weight: 700; line-height: 1.2rem; text-align: center; font-variant-numeric: tabular-nums; }
.popover { position: fixed; inset: var(--top) var(--right) auto var(--left); margin: 0; padding: 0; border: 1px solid var(--line); border-radius: var(--radius); background: var(--surface); color: var(--text); box-shadow: var(--shadow); inline-size: min(27rem, calc(100vw - 1rem)); block-size: min(42rem, calc(100dvh - var(--top) - .75rem)); overflow: clip; }
@media (max-width: 30rem) { .popover { inset-inline: .5rem; inline-size: auto; } }
.popover:popover-open { animation: rise .16s ease-out; }
@keyframes rise { from { opacity: 0; transform: translateY(-6px); } }

.panel { position: relative; block-size: 100%; background: var(--surface); color: var(--text); overflow: clip; }
.main, .side { display: flex; flex-direction: column; block-size: 100%; min-block-size: 0; }
.side { display: none; }
.shows-settings > .main { display: none; }
.shows-settings > .side { display: flex; }
.head { display: flex; align-items: center; justify-content: space-between; gap: .5rem; padding: .85rem .75rem .35rem 1.15rem; padding-inline: 1.15rem .75rem; }
.head h2 { font-size: 1.25rem; font-weight: 680; letter-spacing: -.015em; }
.settings-head { justify-content: start; padding-inline-start: .6rem; padding-block-end: .6rem; }
.head-tools { display: flex; gap: .1rem; }
.icon-button { display: grid; place-items: center; inline-size: 2.25rem; block-size: 2.25rem; border-radius: 9px; color: var(--muted); transition: background-color .12s, color .12s; }
.icon-button:hover { background: var(--raised); color: var(--text); }
[dir="rtl"] .body { text-align: right; }
[dir="rtl"] .icon-back { transform: scaleX(-1); }
.bar { display: flex; align-items: center; justify-content: space-between; gap: .5rem; padding: .15rem 1.15rem .7rem; border-block-end: 1px solid var(--line); flex-wrap: wrap; }
.filters { display: flex; gap: .25rem; }
.filter { padding: .3rem .75rem; border-radius: 2rem; color: var(--muted); font-weight: 550; font-size: .875rem; }
.filter:hover { color: var(--text); }
.filter[aria-pressed="true"] { background: var(--raised); color: var(--text); box-shadow: inset 0 0 0 1px var(--line); }
.filter:focus-visible { border-radius: 2rem; box-shadow: var(--focus); }
.filter .count { margin-inline-start: .4rem; color: var(--badge); font-weight: 700; font-variant-numeric: tabular-nums; }
.quiet { color: var(--accent); font-weight: 550; font-size: .875rem; padding: .3rem .25rem; }
.quiet:hover:not(:disabled) { text-decoration: underline; text-underline-offset: .2em; }
.quiet:disabled { color: var(--muted); opacity: .75; }
.plain, .primary { padding: .45rem .9rem; border-radius: 9px; font-weight: 600; font-size: .875rem; border: 1px solid var(--control); }
.plain:hover { background: var(--raised); }
.primary { background: var(--accent); color: var(--on-accent); border-color: transparent; }
.primary:hover { filter: brightness(1.08); }
.banner { display: flex; align-items: center; justify-content: space-between; gap: .75rem; padding: .55rem 1.15rem; background: light-dark(#fdf1d5, #382c12); color: light-dark(#5c4100, #f6d999); font-size: .875rem; }
.banner .plain { border-color: currentColor; padding: .2rem .6rem; flex: none; }

.list { container-type: inline-size; flex: 1; min-block-size: 0; overflow-y: auto; overscroll-behavior: contain; scroll-padding-block-start: 2.5rem; scrollbar-width: thin; scrollbar-color: var(--control) transparent; padding-block-end: .75rem; }
.list:focus-visible { box-shadow: inset 0 0 0 2px var(--accent); border-radius: 0; }
.day { position: sticky; inset-block-start: 0; z-index: 2; padding: .65rem 1.15rem .35rem; background: var(--surface); color: var(--muted); font-size: .78rem; font-weight: 650; letter-spacing: .02em; }
.item { position: relative; display: flex; gap: .25rem; padding: .7rem .6rem .75rem 1.15rem; padding-inline: 1.15rem .6rem; transition: background-color .12s; }
.item + .item::before { content: ""; position: absolute; inset-block-start: 0; inset-inline: 1.15rem 1.15rem; border-block-start: 1px solid var(--line); }
.item:hover, .item:focus-within { background: var(--raised); }
.item.unread::after { content: ""; position: absolute; inset-inline-start: .4rem; inset-block-start: 1.05rem; inline-size: .45rem; block-size: .45rem; border-radius: 50%; background: var(--badge); }
.content { flex: 1; min-inline-size: 0; }
.about { display: flex; align-items: baseline; gap: .4rem; color: var(--muted); font-size: .78rem; line-height: 1.3; }
.about .type { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.about time { margin-inline-start: auto; padding-inline-start: .5rem; white-space: nowrap; font-variant-numeric: tabular-nums; }
.severity { font-weight: 700; color: var(--warning); }
[data-severity="alert"] .severity { color: var(--danger); }
.item h4 { margin-block: .1rem .05rem; line-height: 1.35; }
.title { display: inline; color: var(--text); text-decoration: none; font-weight: 500; overflow-wrap: anywhere; unicode-bidi: plaintext; }
.unread .title { font-weight: 680; }
.title::after { content: ""; position: absolute; inset: 0; }
.title:focus-visible { box-shadow: none; }
.title:focus-visible::after { box-shadow: inset 0 0 0 2px var(--accent); border-radius: 6px; }
.item:hover a.title { text-decoration: underline; text-underline-offset: .2em; text-decoration-thickness: 1px; }
.body { unicode-bidi: plaintext; text-align: left; color: var(--muted); font-size: .9rem; overflow-wrap: anywhere; display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; }
.content img { display: block; max-inline-size: 100%; max-block-size: 11rem; margin-block-start: .55rem; border-radius: 9px; object-fit: cover; }
.actions { position: relative; z-index: 1; display: flex; flex-wrap: wrap; gap: .4rem; margin-block-start: .55rem; }
.action { padding: .3rem .75rem; border-radius: 8px; border: 1px solid var(--control); background: var(--surface); font-size: .85rem; font-weight: 600; }
.action:hover { border-color: var(--text); }
.action.destructive { color: var(--danger); }
.tools { position: relative; z-index: 1; display: flex; align-self: start; justify-content: end; min-inline-size: 4rem; margin-block: -.25rem; opacity: .85; }
@container (max-width: 34rem) { .tools { flex-direction: column; min-inline-size: 2rem; margin-block: -.2rem -.4rem; } }
.tools .icon-button { inline-size: 2rem; block-size: 2rem; }
.tools .icon-button:hover { background: var(--line); }
.tools .icon { inline-size: 1.1rem; block-size: 1.1rem; }
@media (hover: hover) and (pointer: fine) {
  .tools { opacity: 0; transition: opacity .12s; }
  .item:hover .tools, .item:focus-within .tools { opacity: 1; }
}
.more { display: block; margin: .75rem auto .25rem; padding: .45rem 1rem; border-radius: 9px; color: var(--accent); font-weight: 600; font-size: .875rem; }
.more:hover { background: var(--raised); }
.state { display: grid; justify-items: center; align-content: center; gap: .35rem; min-block-size: 70%; padding: 2.5rem 2rem; text-align: center; color: var(--muted); }
.state h3 { color: var(--text); font-weight: 650; font-size: 1.05rem; }
.state .plain { margin-block-start: .6rem; color: var(--text); }
.picture { display: grid; place-items: center; inline-size: 4.5rem; block-size: 4.5rem; margin-block-end: .6rem; border-radius: 50%; background: var(--raised); color: var(--accent); }
.picture .icon { inline-size: 2rem; block-size: 2rem; stroke-width: 1.4; }
.loading { display: block; padding: 1rem 1.15rem; }
.placeholder { display: grid; gap: .5rem; padding-block: .9rem; }
.placeholder span { block-size: .7rem; border-radius: 4px; background: var(--raised); animation: breathe 1.4s ease-in-out infinite alternate; }
.placeholder span:nth-child(1) { inline-size: 30%; }
.placeholder span:nth-child(3) { inline-size: 80%; }
@keyframes breathe { to { opacity: .45; } }
.toast { position: absolute; inset-block-end: 1rem; inset-inline: 1rem; z-index: 3; margin-inline: auto; inline-size: fit-content; max-inline-size: calc(100% - 2rem); padding: .6rem 1rem; border-radius: 10px; background: var(--text); color: var(--surface); font-size: .875rem; box-shadow: var(--shadow); opacity: 0; transform: translateY(8px); transition: opacity .2s, transform .2s; pointer-events: none; }
.toast.shown { opacity: 1; transform: none; }
.toast:empty { visibility: hidden; }

.settings { flex: 1; min-block-size: 0; overflow-y: auto; padding: 0 .9rem 1.2rem; scrollbar-width: thin; scrollbar-color: var(--control) transparent; }
.card { padding: .95rem 1rem; border: 1px solid var(--line); border-radius: calc(var(--radius) - 3px); }
.card + .card { margin-block-start: .75rem; }
.card > h3 { display: flex; align-items: center; gap: .5rem; font-weight: 650; margin-block-end: .2rem; }
.card > h3 .icon { color: var(--accent); }
.hint, .fault { color: var(--muted); font-size: .875rem; }
.toggle { display: inline-flex; align-items: center; gap: .55rem; cursor: pointer; font-size: .875rem; }
.card > .toggle { display: flex; justify-content: space-between; flex-direction: row-reverse; margin-block-start: .55rem; font-weight: 550; }
.toggle input { appearance: none; flex: none; position: relative; inline-size: 2.3rem; block-size: 1.35rem; margin: 0; border-radius: 1rem; background: var(--control); transition: background-color .15s; cursor: inherit; }
.toggle input::before { content: ""; position: absolute; inset-block-start: .175rem; inset-inline-start: .175rem; inline-size: 1rem; block-size: 1rem; border-radius: 50%; background: #fff; transition: inset-inline-start .15s; }
.toggle input:checked { background: light-dark(#93480a, #c9781c); background: var(--carillon-accent, light-dark(#93480a, #bd6f16)); }
.toggle input:checked::before { inset-inline-start: 1.125rem; }
.toggle input:disabled { opacity: .45; }
.toggle input:focus-visible { border-radius: 1rem; }
.quiet-form { display: grid; gap: .8rem; margin-block-start: .8rem; padding-block-start: .8rem; border-block-start: 1px solid var(--line); }
.times { display: grid; grid-template-columns: 1fr 1fr; gap: .75rem; }
.field { display: grid; gap: .25rem; min-inline-size: 0; font-size: .8rem; color: var(--muted); }
.field input, .field select { inline-size: 100%; min-inline-size: 0; padding: .4rem .55rem; border: 1px solid var(--control); border-radius: 8px; background: var(--surface); color: var(--text); font-size: .9rem; }
.days-field { display: flex; flex-wrap: wrap; gap: .3rem; min-inline-size: 0; }
.days-field legend { float: inline-start; inline-size: 100%; margin-block-end: .3rem; font-size: .8rem; color: var(--muted); }
.days-field label { position: relative; flex: 1; }
.days-field input { position: absolute; inset: 0; opacity: 0; margin: 0; inline-size: 100%; block-size: 100%; cursor: pointer; }
.days-field span { display: block; padding: .35rem .15rem; border: 1px solid var(--control); border-radius: 8px; text-align: center; font-size: .8rem; font-weight: 550; color: var(--muted); }
.days-field input:checked + span { background: var(--raised); border-color: var(--accent); color: var(--text); }
.days-field input:focus-visible + span { box-shadow: var(--focus); }
.row { display: flex; align-items: center; gap: .75rem; }
.status { color: var(--muted); font-size: .85rem; }
.status.fault, .email-missing { color: var(--danger); font-weight: 550; }
.email-missing:not(:empty) { margin-block: .3rem .6rem; }
.category { border-block-start: 1px solid var(--line); margin-inline: -1rem; padding-inline: 1rem; }
.category:first-of-type { margin-block-start: .6rem; }
.category:last-child { margin-block-end: -.6rem; }
.category summary { padding-block: .6rem; font-weight: 550; cursor: pointer; }
.category summary .count { margin-inline-start: .5rem; color: var(--muted); font-weight: 400; font-size: .85rem; }
.type-row { display: grid; gap: .35rem; padding-block: .55rem .7rem; border-block-start: 1px dashed var(--line); }
.type-name { font-size: .9rem; }
.toggles { display: flex; flex-wrap: wrap; gap: .4rem 1.1rem; }
.toggles .toggle { color: var(--muted); font-size: .82rem; gap: .4rem; }

.frame { block-size: 100%; }
.page .panel { display: grid; grid-template-columns: minmax(0, 1fr); grid-template-rows: minmax(0, 1fr); max-inline-size: 46rem; margin-inline: auto; }
@media (min-width: 64rem) {
  .page .panel { grid-template-columns: minmax(0, 1fr) 24rem; gap: 1.5rem; max-inline-size: 74rem; background: none; overflow: visible; }
  .page .main, .page .side { display: flex; background: var(--surface); border: 1px solid var(--line); border-radius: var(--radius); overflow: clip; }
  .page .gear, .page .back { display: none; }
  .page .settings-head { padding-inline-start: 1.15rem; }
}
@media (min-width: 48rem) and (max-width: 63.99rem) {
  .page .panel { border: 1px solid var(--line); border-radius: var(--radius); }
}
@media (prefers-reduced-motion: reduce) {
  *, ::before, ::after { animation: none !important; transition: none !important; }
}
@media (forced-colors: active) {
  .badge, .item.unread::after { forced-color-adjust: none; }
  .toggle input { border: 1px solid; }
}
`;

/** The style sheet of the element. Pages theme it with the custom properties `--carillon-*`. */
export const sheet = new CSSStyleSheet();
sheet.replaceSync(css);
