// Carillon · page.js
// SPDX-License-Identifier: Apache-2.0

// Adds to a page: a switch for the theme, buttons that copy code, the reader's place, and
// a menu that keeps the place. Without a script the pages still work.

(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];

  // Theme.

  function offerThemes() {
    const button = document.getElementById("theme");
    const show = () => button.setAttribute("aria-pressed", String(carillonTheme.isDark()));
    button.addEventListener("click", () => {
      carillonTheme.toggle();
      show();
    });
    carillonTheme.onChange(show);
    button.hidden = false;
    show();
  }

  // Copying.

  /** Copies text; false if the browser refuses. */
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Pages over plain HTTP have no clipboard.
    }
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "spoken";
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }

  function offerCopies() {
    const status = document.createElement("p");
    status.className = "spoken";
    status.setAttribute("role", "status");
    document.body.append(status);
    for (const block of all(".code")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        const isDone = await copy(block.querySelector("code").textContent.replace(/\n$/, ""));
        button.focus({ preventScroll: true });
        button.textContent = isDone ? "Copied" : "Not copied";
        status.textContent = button.textContent;
        button.classList.add("done");
        setTimeout(() => {
          button.textContent = "Copy";
          status.textContent = "";
          button.classList.remove("done");
        }, 1_600);
      });
      block.append(button);
    }
  }

  // Make boxes that scroll sideways reachable by keyboard.

  function offerScrolling() {
    const boxes = all(".table, pre");
    const note = () => {
      for (const box of boxes) {
        if (box.scrollWidth > box.clientWidth) {
          box.tabIndex = 0;
          box.setAttribute("role", "group");
          box.setAttribute("aria-label", box.matches("pre") ? "Code" : "Table");
        } else {
          for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
        }
      }
    };
    new ResizeObserver(note).observe(document.querySelector("article"));
  }

  // The section that is on the screen.

  function showPlace() {
    const links = new Map(all(".contents a").map((link) => [decodeURIComponent(link.hash.slice(1)), link]));
    const headings = [...links.keys()].map((id) => document.getElementById(id)).filter(Boolean);
    if (headings.length === 0) return;
    const box = document.querySelector(".contents");
    let here = null;
    const note = () => {
      const top = parseFloat(getComputedStyle(document.documentElement).scrollPaddingBlockStart) + 8;
      const isAtEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
      const passed = headings.filter((heading) => heading.getBoundingClientRect().top <= top);
      const link = links.get((isAtEnd ? headings.at(-1) : (passed.at(-1) ?? headings[0])).id);
      if (link === here) return;
      here?.classList.remove("here");
      here?.removeAttribute("aria-current");
      link.classList.add("here");
      link.setAttribute("aria-current", "location");
      here = link;
      // Only the column scrolls, never the page.
      const offset = link.offsetTop - box.offsetTop;
      if (offset < box.scrollTop + 40 || offset > box.scrollTop + box.clientHeight - 60) {
        box.scrollTop = offset - box.clientHeight / 2;
      }
    };
    let isWaiting = false;
    addEventListener("scroll", () => {
      if (isWaiting) return;
      isWaiting = true;
      requestAnimationFrame(() => {
        isWaiting = false;
        note();
      });
    }, { passive: true });
    note();
  }

  // The menu of narrow screens. Without a script, `:target` shows it.

  function offerMenu() {
    const opener = document.querySelector(".menu-button");
    const closer = document.querySelector(".menu-close");
    const open = (isOpen) => {
      document.body.classList.toggle("menu-open", isOpen);
      (isOpen ? closer : opener).focus({ preventScroll: true });
    };
    opener.addEventListener("click", (event) => {
      event.preventDefault();
      open(true);
    });
    closer.addEventListener("click", (event) => {
      event.preventDefault();
      open(false);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && document.body.classList.contains("menu-open")) open(false);
    });
  }

  /** Scrolls the navigation to the current page, once. */
  function showPage() {
    const link = document.querySelector(".pages [aria-current]");
    const box = document.getElementById("menu");
    if (link && link.offsetTop > box.clientHeight - 80) box.scrollTop = link.offsetTop - box.clientHeight / 2;
  }

  offerThemes();
  offerCopies();
  offerScrolling();
  offerMenu();
  showPlace();
  showPage();
})();
