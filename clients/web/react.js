// Carillon · react.js
// SPDX-License-Identifier: Apache-2.0
"use client";

import {
  createElement, forwardRef, useEffect, useImperativeHandle, useLayoutEffect, useRef, useSyncExternalStore,
} from "react";

const attributes = ["token", "url", "view", "category", "org", "lang", "theme", "worker"];
const events = {
  onUnread: "carillon-unread", onArrival: "carillon-arrival", onOpen: "carillon-open",
  onAction: "carillon-action", onEvent: "carillon-event", onSignedOut: "carillon-signed-out",
};
const own = new Set([...attributes, ...Object.keys(events), "tokenProvider", "texts", "renderItem", "className"]);
/** Warn about an inline function after this many changes of `tokenProvider`. */
const mostProviders = 5;
const warning = "carillon: tokenProvider changes often, and the inbox reconnects each time; "
  + "keep it outside of the component or in useCallback";

// Servers run no effects, and React 18 warns there about layout effects.
const useCommit = typeof document === "undefined" ? useEffect : useLayoutEffect;

/** The inbox as a component. Its props are the attributes, properties and events of the element. */
export const CarillonInbox = forwardRef(function CarillonInbox(props, ref) {
  const element = useRef(null);
  const latest = useRef(props);
  const providers = useRef(0);
  // Inline functions differ at each render, and a new `renderItem` would restart the element.
  const draw = useRef((...all) => latest.current.renderItem?.(...all) ?? null);

  useImperativeHandle(ref, () => element.current, []);
  useCommit(() => {
    latest.current = props;
    setAttributes(element.current, props);
    setProperty(element.current, "renderItem", props.renderItem ? draw.current : null);
    const isNew = setProperty(element.current, "tokenProvider", props.tokenProvider ?? null);
    if (isNew && ++providers.current === mostProviders) console.warn(warning);
    if (!hasSameEntries(element.current.texts, props.texts)) element.current.texts = props.texts ?? {};
  });
  useCommit(() => listen(element.current, latest), []);
  useEffect(() => { load(); }, []);

  const rest = Object.fromEntries(Object.entries(props).filter(([name]) => !own.has(name)));
  // React 18 sets `className` of a custom element as an attribute of that name.
  if (props.className) rest.class = props.className;
  return createElement("carillon-inbox", { ...rest, ref: element });
});

/**
 * Returns the unread count of the page's first inbox with this category and organisation, or of the
 * first that shows all.
 *
 * Null until the count is known.
 */
export function useUnread(category = "", org = "") {
  return useSyncExternalStore(subscribe, () => unread({ category, org }), () => null);
}

function subscribe(redraw) {
  const names = [events.onUnread, events.onSignedOut];
  for (const name of names) document.addEventListener(name, redraw);
  return () => names.forEach((name) => document.removeEventListener(name, redraw));
}

function unread(feed) {
  const inboxes = [...document.querySelectorAll("carillon-inbox")];
  const isIt = (one) => Object.entries(feed).every(([name, value]) => (one.getAttribute(name) ?? "") === value);
  return inboxes.find(isIt)?.unread ?? null;
}

/**
 * Sets the attributes, because React 18 and 19 set those of custom elements differently, and React
 * 19 writes a removed `lang` as "undefined".
 */
function setAttributes(element, props) {
  for (const name of attributes) {
    const value = props[name] ?? "";
    if (value === "") element.removeAttribute(name);
    else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  }
}

/** Sets a property if it differs, because each set restarts the element. Returns whether it did. */
function setProperty(element, name, value) {
  // Until its module has loaded, the element has no properties.
  if ((element[name] ?? null) === value) return false;
  element[name] = value;
  return true;
}

function hasSameEntries(one, other) {
  const [first, second] = [one ?? {}, other ?? {}];
  const names = Object.keys(first);
  return names.length === Object.keys(second).length
    && names.every((name) => Object.hasOwn(second, name) && Object.is(first[name], second[name]));
}

/** Calls the latest handlers. Returns a function that removes the listeners. */
function listen(element, latest) {
  const listeners = Object.entries(events).map(([prop, name]) => [name, (event) => latest.current[prop]?.(event)]);
  for (const [name, listener] of listeners) element.addEventListener(name, listener);
  return () => listeners.forEach(([name, listener]) => element.removeEventListener(name, listener));
}

/** Loads the element in the browser only, because servers have no custom elements. */
function load() {
  import("./index.js").catch((error) => console.warn("carillon:", error.message));
}
