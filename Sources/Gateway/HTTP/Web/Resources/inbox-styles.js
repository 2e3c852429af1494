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
  font: 400 .9375rem/1.45 var(--carillon-font, system-ui, sans-serif);
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
[aria-disabled="true"] { cursor: default; }
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
.head { display: flex; align-items: center; justify-content: space-between; gap: .5rem; padding-block: .85rem .35rem; padding-inline: 1.15rem .75rem; }
.head h2 { font-size: 1.25rem; font-weight: 680; letter-spacing: -.015em; }
.settings-head { justify-content: start; padding-inline-start: .6rem; padding-block-end: .6rem; }
.head-tools { display: flex; align-items: center; gap: .1rem; margin-inline-start: auto; }
.leave { margin-inline-start: -.5rem; }
.icon-button { display: grid; place-items: center; inline-size: 2.25rem; block-size: 2.25rem; border-radius: 9px; color: var(--muted); transition: background-color .12s, color .12s; }
.icon-button:hover:not([aria-disabled="true"]) { background: var(--raised); color: var(--text); }
.icon-button[aria-disabled="true"] { opacity: .4; }
[dir="rtl"] .body { text-align: right; }
[dir="rtl"] .icon-back { transform: scaleX(-1); }
.bar { display: flex; align-items: center; justify-content: space-between; gap: .5rem; padding: .15rem 1.15rem .7rem; border-block-end: 1px solid var(--line); }
.filters { display: flex; gap: .25rem; min-inline-size: 0; overflow-x: auto; scrollbar-width: none; overscroll-behavior-x: contain; padding: 3px; margin: -3px; }
.filter { flex: none; padding: .3rem .75rem; white-space: nowrap; border-radius: 2rem; color: var(--muted); font-weight: 550; font-size: .875rem; }
.filter:hover { color: var(--text); }
.filter[aria-pressed="true"] { background: var(--raised); color: var(--text); box-shadow: inset 0 0 0 1px var(--line); }
.filter:focus-visible { border-radius: 2rem; box-shadow: var(--focus); }
.filter .count { margin-inline-start: .4rem; color: var(--badge); font-weight: 700; font-variant-numeric: tabular-nums; }
.plain, .primary { padding: .45rem .9rem; border-radius: 9px; font-weight: 600; font-size: .875rem; border: 1px solid var(--control); }
.plain:hover { background: var(--raised); }
.primary { background: var(--accent); color: var(--on-accent); border-color: transparent; }
.primary:hover { filter: brightness(1.08); }
.banner { display: flex; align-items: center; justify-content: space-between; gap: .75rem; padding: .55rem 1.15rem; background: light-dark(#fdf1d5, #382c12); color: light-dark(#5c4100, #f6d999); font-size: .875rem; }
.banner .plain { border-color: currentColor; padding: .2rem .6rem; flex: none; }

.list-frame { position: relative; flex: 1; min-block-size: 0; display: grid; grid-template-columns: minmax(0, 1fr); grid-template-rows: minmax(0, 1fr); }
.list { container-type: inline-size; overflow-y: auto; overflow-anchor: none; overscroll-behavior: contain; scroll-padding-block-start: 2.5rem; scrollbar-width: thin; scrollbar-color: var(--control) transparent; padding-block-end: .75rem; }
.list:focus-visible { box-shadow: inset 0 0 0 2px var(--accent); border-radius: 0; }
.pill { position: absolute; inset-block-start: .6rem; inset-inline: 0; z-index: 4; margin-inline: auto; inline-size: fit-content; padding: .35rem .95rem; border-radius: 2rem; background: var(--accent); color: var(--on-accent); font-size: .82rem; font-weight: 650; box-shadow: var(--shadow); animation: rise .2s ease-out; }
.pill:focus-visible { border-radius: 2rem; }
.day { position: sticky; inset-block-start: 0; z-index: 3; padding: .65rem 1.15rem .35rem; background: var(--surface); color: var(--muted); font-size: .75rem; font-weight: 650; letter-spacing: .04em; text-transform: uppercase; }
:lang(ar) .day, :lang(ja) .day { letter-spacing: 0; text-transform: none; }
.item { position: relative; display: flex; gap: .8rem; padding: var(--carillon-item-padding, .8rem 1.15rem .85rem); transition: background-color .12s; }
.item + .item::before { content: ""; position: absolute; inset-block-start: 0; inset-inline: 4.2rem 1.15rem; border-block-start: 1px solid var(--line); }
.item:hover, .item:focus-within { background: var(--raised); }
.item.unread { background: color-mix(in srgb, var(--accent) 5%, var(--surface)); }
.item.unread:hover, .item.unread:focus-within { background: color-mix(in srgb, var(--accent) 9%, var(--raised)); }
.item.unread::after { content: ""; position: absolute; inset-inline-start: .42rem; inset-block-start: calc(.8rem + 1rem); inline-size: .45rem; block-size: .45rem; border-radius: 50%; background: var(--badge); }
.avatar { position: relative; flex: none; display: grid; place-items: center; inline-size: 2.45rem; block-size: 2.45rem; border-radius: var(--carillon-avatar-radius, 50%); background: light-dark(#efe6da, #332c25); color: light-dark(#7a3c08, #f0b679); }
.avatar[data-tint="1"] { background: light-dark(#dfe9f3, #23303d); color: light-dark(#1f4f7d, #9cc6ee); }
.avatar[data-tint="2"] { background: light-dark(#e1eedf, #25342a); color: light-dark(#25613a, #98d3ab); }
.avatar[data-tint="3"] { background: light-dark(#ece3f3, #302738); color: light-dark(#5d3a80, #cbaeea); }
.avatar[data-tint="4"] { background: light-dark(#f6e0e0, #3a2728); color: light-dark(#8c2f33, #f0a9ab); }
.avatar[data-tint="5"] { background: light-dark(#dcecea, #203331); color: light-dark(#1c5f58, #8fd2ca); }
[data-severity="alert"] > .avatar { background: light-dark(#f8dcd8, #42231f); color: var(--danger); }
[data-severity="warning"] > .avatar { background: light-dark(#f8e9c6, #3d3018); color: var(--warning); }
.avatar .face, .avatar > .sign { inline-size: 100%; block-size: 100%; border-radius: inherit; object-fit: cover; }
.avatar .initials { font-size: .88rem; font-weight: 680; letter-spacing: .01em; }
.avatar .emoji { font-size: 1.2rem; line-height: 1; }
.avatar-badge { position: absolute; inset-block-end: -.2rem; inset-inline-end: -.25rem; display: grid; place-items: center; inline-size: 1.2rem; block-size: 1.2rem; border-radius: 50%; background: var(--surface); color: var(--text); box-shadow: 0 0 0 1px var(--line); }
.avatar-badge .icon { inline-size: .75rem; block-size: .75rem; stroke-width: 2; }
.avatar-badge .emoji { font-size: .7rem; }
.avatar-badge .sign { inline-size: .8rem; block-size: .8rem; border-radius: 50%; }
.content { flex: 1; min-inline-size: 0; }
.about { display: flex; align-items: baseline; gap: .4rem; color: var(--muted); font-size: .78rem; line-height: 1.3; }
.about .type { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.about time { margin-inline-start: auto; padding-inline-start: .5rem; white-space: nowrap; font-variant-numeric: tabular-nums; }
.severity { font-weight: 700; color: var(--warning); }
[data-severity="alert"] .severity { color: var(--danger); }
.item h4 { margin-block: .12rem .05rem; line-height: 1.35; }
.title { display: inline; color: var(--text); text-decoration: none; font-weight: 500; overflow-wrap: anywhere; unicode-bidi: plaintext; }
.unread .title { font-weight: 680; }
.title::after { content: ""; position: absolute; inset: 0; }
.title:focus-visible { box-shadow: none; }
.title:focus-visible::after { box-shadow: inset 0 0 0 2px var(--accent); border-radius: 6px; }
.item:hover a.title { text-decoration: underline; text-underline-offset: .2em; text-decoration-thickness: 1px; }
.own .title { display: block; inline-size: 100%; font-weight: inherit; }
.body { unicode-bidi: plaintext; text-align: left; color: var(--muted); font-size: .9rem; overflow-wrap: anywhere; display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; }
.body strong { color: var(--text); font-weight: 620; }
.content code { padding: .05em .35em; border-radius: 5px; background: var(--raised); box-shadow: inset 0 0 0 1px var(--line); font: .86em ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace; }
.content .picture { display: block; max-inline-size: 100%; max-block-size: 11rem; margin-block-start: .55rem; border-radius: 10px; object-fit: cover; }
.actions { position: relative; z-index: 1; display: flex; flex-wrap: wrap; gap: .4rem; margin-block-start: .6rem; inline-size: fit-content; }
.action { padding: .32rem .8rem; border-radius: 8px; border: 1px solid var(--control); background: var(--surface); font-size: .85rem; font-weight: 600; }
.action:hover { border-color: var(--text); }
.action.first { background: var(--accent); color: var(--on-accent); border-color: transparent; }
.action.first:hover { filter: brightness(1.08); }
.action.destructive { color: var(--danger); }
.tools { position: absolute; z-index: 2; inset-block-start: .45rem; inset-inline-end: .7rem; display: flex; padding: .1rem; border-radius: 10px; background: var(--surface); box-shadow: 0 0 0 1px var(--line), 0 2px 8px rgb(40 26 8 / .1); opacity: 0; transition: opacity .12s; }
.item:hover .tools, .item:focus-within .tools, .tools:has([aria-expanded="true"]) { opacity: 1; }
.tools .icon-button { inline-size: 2rem; block-size: 2rem; border-radius: 8px; }
.tools .icon { inline-size: 1.1rem; block-size: 1.1rem; }
.icon-more { stroke-width: 3; }
@media (hover: none) {
  .tools { opacity: 1; background: none; box-shadow: none; inset-block: auto .35rem; inset-inline-end: .4rem; }
  .tools:has([data-part="more"]) .icon-button:not([data-part="more"]) { display: none; }
  .content { padding-inline-end: 1.4rem; }
  .content:has(+ .tools [data-part="restore"]) { padding-inline-end: 3.4rem; }
}
.more { display: block; margin: .75rem auto .25rem; padding: .45rem 1rem; border-radius: 9px; color: var(--accent); font-weight: 600; font-size: .875rem; }
.more:hover { background: var(--raised); }
.state { display: grid; justify-items: center; align-content: center; gap: .35rem; min-block-size: 70%; padding: 2.5rem 2rem; text-align: center; color: var(--muted); }
.state h3 { color: var(--text); font-weight: 650; font-size: 1.1rem; letter-spacing: -.01em; }
.state p { max-inline-size: 20rem; }
.state .plain { margin-block-start: .6rem; color: var(--text); }
.state .picture { inline-size: 8.5rem; block-size: 6.8rem; margin-block-end: .5rem; fill: none; stroke-width: 2.4; stroke-linecap: round; stroke-linejoin: round; }
.picture .shade, .picture .fill { fill: var(--raised); }
.picture .line { stroke: var(--control); }
.picture .mark { stroke: var(--accent); stroke-width: 3; }
.loading { display: block; padding: 1rem 1.15rem; }
.placeholder { display: grid; gap: .5rem; padding-block: .9rem; }
.placeholder span { block-size: .7rem; border-radius: 4px; background: var(--raised); animation: breathe 1.4s ease-in-out infinite alternate; }
.placeholder span:nth-child(1) { inline-size: 30%; }
.placeholder span:nth-child(3) { inline-size: 80%; }
@keyframes breathe { to { opacity: .45; } }
.toast { position: absolute; inset-block-end: 1rem; inset-inline: 1rem; z-index: 5; display: flex; align-items: center; gap: 1rem; margin-inline: auto; inline-size: fit-content; max-inline-size: calc(100% - 2rem); padding: .55rem 1rem; border-radius: 11px; background: var(--text); color: var(--surface); font-size: .875rem; box-shadow: var(--shadow); opacity: 0; visibility: hidden; transform: translateY(8px); transition: opacity .2s, transform .2s, visibility .2s; }
.toast.shown { opacity: 1; visibility: visible; transform: none; transition-duration: .2s, .2s, 0s; }
.toast-action { flex: none; padding: .15rem .4rem; border-radius: 6px; color: inherit; font-weight: 700; text-decoration: underline; text-underline-offset: .2em; }

.settings { flex: 1; min-block-size: 0; overflow-y: auto; padding: 0 .9rem 1.2rem; scrollbar-width: thin; scrollbar-color: var(--control) transparent; }
.settings-place { flex: 1; min-block-size: 0; display: flex; flex-direction: column; }
.hint, .fault { color: var(--muted); font-size: .875rem; }

.frame { block-size: 100%; }
.page .panel { display: grid; grid-template-columns: minmax(0, 1fr); grid-template-rows: minmax(0, 1fr); max-inline-size: 46rem; margin-inline: auto; }
@media (min-width: 64rem) {
  .page .panel { grid-template-columns: minmax(0, 1fr) 24rem; gap: 1.5rem; max-inline-size: 74rem; background: none; overflow: visible; }
  .page .main, .page .side { display: flex; background: var(--surface); border: 1px solid var(--line); border-radius: var(--radius); overflow: clip; }
  .page .gear, .page .settings-head .back { display: none; }
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
  :focus-visible { outline: 2px solid CanvasText; }
  .filter[aria-pressed="true"] { border-color: Highlight; background: Highlight; color: HighlightText; forced-color-adjust: none; }
  .filter[aria-pressed="true"] .count { color: inherit; }
}
`;

/** The style sheet of the element. Pages theme it with the custom properties `--carillon-*`. */
export const sheet = new CSSStyleSheet();
sheet.replaceSync(css);

/** The sheets of the parts that load later; each part fills its own. */
export const later = { menu: new CSSStyleSheet(), settings: new CSSStyleSheet() };
