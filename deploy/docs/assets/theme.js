// Carillon · theme.js
// SPDX-License-Identifier: Apache-2.0

// Sets the theme that the reader chose, before the page is drawn.

(() => {
  const key = "carillon-docs-theme";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");

  /** Reads the choice; null if there is none, or if the browser stores nothing. */
  function stored() {
    try {
      return localStorage.getItem(key);
    } catch {
      return null;
    }
  }

  function store(theme) {
    try {
      if (theme) localStorage.setItem(key, theme);
      else localStorage.removeItem(key);
    } catch {
      // The choice then applies to this page only.
    }
  }

  function apply(theme) {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  }

  const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";

  apply(stored());

  /** The theme of the page. A choice that agrees with the system's is forgotten. */
  globalThis.carillonTheme = {
    isDark,
    toggle() {
      const theme = isDark() ? "light" : "dark";
      const choice = system.matches === (theme === "dark") ? null : theme;
      apply(choice);
      store(choice);
    },
    onChange(listener) {
      system.addEventListener("change", listener);
      // Follow a change in another tab.
      addEventListener("storage", (event) => {
        if (event.key !== key) return;
        apply(event.newValue);
        listener();
      });
    },
  };
})();
