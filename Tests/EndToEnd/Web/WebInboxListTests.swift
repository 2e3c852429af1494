// Carillon · WebInboxListTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

/// Lists of the inbox and its archive, page by page, in a real browser, with a gateway that the
/// page plays.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled))
struct WebInboxListTests {
    @Test("after a refused change that nothing overtook, the older pages stay in the list")
    func refusedChangeOfOlderPage() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            let loads = 0;
            gateway.answer = (method, token, path, query) => {
              if (method === "POST") return new Response("{}", { status: 422 });
              loads += 1;
              return query.has("cursor") ? page(5, item("a", 4)) : page(5, item("b", 5));
            };
            const inbox = new Inbox(url, async () => "token", "en");
            await opened(inbox);
            sockets[0].take(welcome);
            await inbox.loadMore({});
            const isSaved = await inbox.snooze("a", new Date());
            inbox.close();
            return [isSaved, loads, inbox.isLoading, inbox.store.list().map(({ id }) => id)].map(String);
            """)
        #expect(found == ["false", "2", "false", "b,a"])
    }

    @Test("an entry of the archive whose deletion fails stays there")
    func failedDeletion() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            gateway.answer = (method, token, path) => {
              if (method === "DELETE") return new Response("{}", { status: path.endsWith("/c") ? 404 : 503 });
              return path.endsWith("/archived") ? page(5, item("c", 5), item("b", 4), item("a", 3)) : page(5);
            };
            const inbox = new Inbox(url, async () => "token", "en");
            await opened(inbox);
            sockets[0].take(welcome);
            await inbox.loadArchive(true);
            const ids = () => inbox.archive.items.map(({ id }) => id).join();
            const removal = inbox.remove("b");
            const found = [ids(), await removal, ids()];
            // Another device has deleted this one.
            found.push(await inbox.remove("c"), ids());
            let refuse;
            gateway.answer = (method) => {
              if (method !== "DELETE") return page(5, item("0", 2));
              return new Promise((done) => { refuse = () => done(new Response("{}", { status: 503 })); });
            };
            const overtaken = inbox.remove("b");
            await inbox.loadArchive(false);
            await until(() => refuse);
            refuse();
            found.push(await overtaken, ids());
            inbox.close();
            return found.map(String);
            """)
        #expect(found == ["c,a", "false", "c,b,a", "false", "b,a", "false", "b,a,0"])
    }

    @Test("an empty list asks for its next page, also in the archive, and again if that failed")
    func emptyLists() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            const [{ Panel }, { en }] = await Promise.all(["inbox-panel", "texts"].map(load));
            const time = "2026-01-01T00:00:00Z";
            const usual = { type: "t", severity: "info", created_at: time };
            const row = (id, more) => ({ ...item(id, 5), title: id, ...usual, ...more });
            const last = (notification) => Response.json({ notifications: [notification], next_cursor: null });
            const works = (method, token, path, query) => {
              if (method === "DELETE") return Response.json({ unread: 1, version: 5 });
              const isOlder = query.has("cursor");
              if (path.endsWith("/archived")) return isOlder ? last(row("e")) : page(5, row("f"));
              if (!isOlder) return page(5, row("z", { read_at: time }));
              return page(5, query.has("category") ? row("c", { category: "x" }) : row("u"));
            };
            const fails = () => { throw new TypeError("no network"); };
            gateway.answer = works;
            gateway.words = () => Response.json({ categories: [{ category: "x" }, { category: "y" }] });
            const inbox = new Inbox(url, async () => "token", "en");
            await opened(inbox);
            sockets[0].take(welcome);
            const panel = new Panel(inbox, null, { language: "en", texts: en, feed: { category: null, org: null } });
            document.body.append(panel.element);
            panel.start();
            const part = (selector) => panel.element.querySelector(selector);
            const titles = () => [...panel.element.querySelectorAll(".title")].map((one) => one.textContent).join();
            const lists = (wanted) => until(() => titles() === wanted);
            const reconnects = async () => {
              const { length } = sockets;
              sockets.at(-1).onclose({ code: 1006 });
              await until(() => sockets.length > length);
              gateway.answer = works;
              sockets.at(-1).take(welcome);
            };
            await lists("z");
            gateway.answer = fails;
            part("[data-filter=unread]").click();
            const found = [part(".state").className];
            await until(() => part(".state.failed"));
            found.push(part(".toast").textContent);
            await reconnects();
            await lists("u");
            gateway.answer = fails;
            part("[data-filter='category:y']").click();
            await until(() => part(".state.failed"));
            gateway.answer = works;
            part("[data-filter='category:x']").click();
            await lists("c");
            gateway.answer = fails;
            part(".list-menu").click();
            await until(() => part("[data-entry=archive]"));
            part("[data-entry=archive]").click();
            await until(() => part(".state.failed"));
            await reconnects();
            await lists("f");
            part("[data-part=remove]").click();
            await lists("e");
            part("[data-part=remove]").click();
            await until(() => part(".state.emptyArchive"));
            panel.stop();
            panel.element.remove();
            inbox.close();
            return found;
            """)
        #expect(found == ["state loading", "Could not load your notifications"])
    }

    @Test("a bell counts the categories of its tabs only while its panel is open in a visible page")
    func countsOfTabs() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            let counts = 0;
            const start = setTimeout;
            globalThis.setTimeout = (work, wait) => {
              if (wait !== 400) return start(work, wait);
              counts += 1;
              return start(work);
            };
            gateway.words = () => Response.json({ categories: [{ category: "x" }, { category: "y" }] });
            gateway.count = () => Response.json({ categories: { x: counts } });
            let visibility = "visible";
            Object.defineProperty(document, "visibilityState", { get: () => visibility });
            const element = document.createElement("carillon-inbox");
            for (const [name, value] of Object.entries({ url, token: "token" })) element.setAttribute(name, value);
            document.body.append(element);
            await until(() => sockets.length === 1);
            sockets[0].take(welcome);
            const part = (selector) => element.shadowRoot.querySelector(selector);
            await until(() => part("[data-filter='category:y']"));
            const usual = { type: "t", severity: "info", created_at: "2026-01-01T00:00:00Z" };
            const drawn = async (version) => {
              const notification = { ...item(`n${version}`, version), title: `n${version}`, ...usual };
              sockets[0].take({ type: "notification", version, unread: 1, notification });
              await until(() => part(".title")?.textContent === `n${version}`);
            };
            const shown = () => part("[data-filter='category:x'] .count").textContent;
            await drawn(6);
            const found = [counts];
            element.toggle(true);
            await until(() => shown() === "1");
            await drawn(7);
            await until(() => shown() === "2");
            visibility = "hidden";
            await drawn(8);
            found.push(counts);
            visibility = "visible";
            document.dispatchEvent(new Event("visibilitychange"));
            await until(() => shown() === "3");
            element.toggle(false);
            await drawn(9);
            found.push(counts);
            element.remove();
            globalThis.setTimeout = start;
            return found.map(String);
            """)
        #expect(found == ["0", "2", "3"])
    }

    @Test("while the menus load, only the last click counts, and none once the focus is elsewhere")
    func slowMenus() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            const [{ Panel }, { en }] = await Promise.all(["inbox-panel", "texts"].map(load));
            const inbox = new Inbox(url, async () => "token", "en");
            const isOpenAfter = async (step) => {
              const panel = new Panel(inbox, null, { language: "en", texts: en, feed: { category: null, org: null } });
              document.body.append(panel.element);
              const part = (selector) => panel.element.querySelector(selector);
              part(".list-menu").focus();
              part(".list-menu").click();
              step(part);
              await load("menu");
              await new Promise((next) => setTimeout(next));
              const isOpen = part(".menu")?.matches(":popover-open") ?? false;
              panel.stop();
              panel.element.remove();
              return String(isOpen);
            };
            const found = [
              await isOpenAfter((part) => part(".list-menu").click()),
              await isOpenAfter((part) => part(".read-all").focus()),
            ];
            inbox.close();
            return found;
            """)
        #expect(found == ["true", "false"])
    }

    @Test("the empty category counts and pages what has no category")
    func noCategory() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            gateway.answer = () => page(5, item("c", 5), { ...item("b", 4), category: "x" });
            gateway.count = () => Response.json({ categories: { "": 7, x: 3 } });
            const inbox = new Inbox(url, async () => "token", "en");
            await opened(inbox);
            sockets[0].take(welcome);
            const none = { category: "" };
            const found = [inbox.unread(none)];
            inbox.countCategories();
            await until(() => inbox.unread({ category: "x" }) === 3);
            found.push(inbox.unread(none), inbox.unread({}));
            let query;
            gateway.answer = (method, token, path, searchParams) => {
              query = searchParams;
              return page(5, item("a", 3));
            };
            await inbox.loadMore({ ...none, isUnread: true });
            found.push(query.has("category"), inbox.store.list(none).map(({ id }) => id).join());
            inbox.close();
            return found.map(String);
            """)
        #expect(found == ["null", "7", "2", "false", "c,a"])
    }

    @Test("a notification that is deleted while an older page loads does not come back with it")
    func overtakenPage() async throws {
        let left = try await Stack.runWithFakeGateway(
            """
            gateway.answer = () => page(5, item("b", 5));
            const inbox = new Inbox(url, async () => "token", "en");
            await opened(inbox);
            sockets[0].take(welcome);
            gateway.answer = () => {
              gateway.answer = () => page(6);
              sockets[0].take({ type: "deleted", version: 6, unread: 1, change: { ids: ["a"] } });
              return page(5, item("a", 4));
            };
            await inbox.loadMore({});
            inbox.close();
            return inbox.store.list().map(({ id }) => id);
            """)
        #expect(left == ["b"])
    }

    @Test("a full list keeps its oldest while an older page loads, and then continues with that page")
    func arrivalDuringPage() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            const newest = Array.from({ length: 1000 }, (_, index) => item(String(3000 - index), 5));
            gateway.answer = () => page(5, ...newest);
            const inbox = new Inbox(url, async () => "token", "en");
            await opened(inbox);
            sockets[0].take(welcome);
            gateway.answer = () => {
              sockets[0].take({ type: "notification", version: 6, unread: 1, notification: item("3001", 6) });
              return page(6, item("2000", 1));
            };
            await inbox.loadMore({});
            inbox.close();
            return [String(inbox.store.list().length), inbox.store.cursor({})];
            """)
        #expect(found == ["1002", "2000"])
    }
}
