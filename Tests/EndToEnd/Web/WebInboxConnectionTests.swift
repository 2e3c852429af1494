// Carillon · WebInboxConnectionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

/// The inbox's modules in a real browser, with a gateway that the page plays.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled))
struct WebInboxConnectionTests {
    @Test("a reload that fails after a reset is tried again, and until then no version is resumed")
    func failedReload() async throws {
        let resumed = try await Stack.runWithFakeGateway(
            """
            const inbox = new Inbox(url, async () => "token", "en");
            await opened(inbox);
            let failures = 0;
            gateway.answer = () => {
              failures += 1;
              return new Response("{}", { status: 503 });
            };
            sockets[0].take(welcome);
            sockets[0].take({ ...sync, reset: true, version: 900 });
            sockets[0].take({ type: "notification", version: 901, unread: 2, notification: item("b", 901) });
            await until(() => failures > 1);
            sockets[0].onclose({ code: 1006 });
            await until(() => sockets.length === 2);
            gateway.answer = () => page(902, item("b", 901), item("a", 900));
            sockets[1].take(welcome);
            await until(() => inbox.store.version === 902);
            // Without a version, this is no list of changes.
            gateway.answer = () => page(903, item("b", 901));
            sockets[1].take({ ...sync, reset: false, version: 903 });
            await until(() => inbox.store.list().length === 1);
            inbox.close();
            return sockets.map(({ resume }) => String(resume));
            """)
        #expect(resumed == ["5", "null"])
    }

    @Test("while a page fetches a fresh token, the inbox is offline; it waits no longer than its limit")
    func hangingToken() async throws {
        let states = try await Stack.runWithFakeGateway(
            """
            let give;
            const fresh = () => new Promise((done) => { give = done; });
            const inbox = new Inbox(url, (isRefused) => (isRefused ? fresh() : "token"), "en");
            await opened(inbox);
            sockets[0].take(welcome);
            sockets[0].onclose({ code: 4401 });
            const states = [inbox.state];
            inbox.retry();
            await until(() => sockets.length === 2);
            sockets[1].take(welcome);
            give("fresh");
            await new Promise((next) => setTimeout(next));
            states.push(inbox.state);
            Client.patience = 10;
            // The token of this socket has been replaced; that of the next one has not.
            sockets[1].onclose({ code: 4401 });
            await until(() => sockets.length === 3);
            sockets[2].onclose({ code: 4401 });
            await until(() => sockets.length === 4);
            inbox.close();
            return states;
            """)
        #expect(states == ["offline", "online"])
    }

    @Test("the socket gets a fresh token before its own expires, again if the gateway is busy; one refused is replaced")
    func renewal() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            const now = Math.floor(Date.now() / 1000);
            const token = (user, exp) => `e30.${btoa(JSON.stringify({ user, iat: now - 1, exp }))}.e30`;
            const tokens = [token("ada", now + 1), token("ada", now + 600)];
            const inbox = new Inbox(url, async () => tokens.shift(), "en");
            await opened(inbox);
            const sent = [];
            sockets[0].send = (text) => sent.push(JSON.parse(text));
            sockets[0].take(welcome);
            const messages = () => sent.filter(({ type }) => type === "auth");
            await until(() => messages().length === 1);
            const { ref } = messages()[0];
            sockets[0].take({ type: "error", reason: "busy", retry: true, ref });
            await until(() => messages().length === 2);
            const found = [messages().every((message) => message.token === token("ada", now + 600)), tokens.length];
            sockets[0].take({ type: "error", reason: "another message" });
            found.push(inbox.state);
            gateway.user = () => "eve";
            sockets[0].take({ type: "error", reason: "the token belongs to another user", ref });
            await until(() => sockets.length === 2);
            inbox.close();
            return [...found, sockets[1].resume].map(String);
            """)
        #expect(found == ["true", "0", "online", "null"])
    }

    @Test("two opens during a call for a ticket give one socket; if the clock is ahead, a fresh token is kept for 30 s")
    func clockAhead() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            const iat = Math.floor(Date.now() / 1000);
            let count = 0;
            const token = () => `e30.${btoa(JSON.stringify({ iat, exp: iat + 600, count: ++count }))}.e30`;
            Date.now = () => (iat + 86_400) * 1000;
            const start = setTimeout;
            const [waits, give] = [[], []];
            globalThis.setTimeout = (work, wait) => {
              if ([1_000, 30_000].includes(wait)) waits.push(wait);
              return start(work, wait === 1_000 ? 0 : wait);
            };
            const ticket = () => new Promise((done) => give.push(() => done({ ticket: "one", token: token() })));
            const connection = new Connection({ url, ticket, token: async () => token() }, () => 7);
            for (const step of ["open", "open", "close", "open"]) connection[step]();
            give.forEach((one) => one());
            await until(() => sockets.length > 0);
            sockets[0].take(welcome);
            await until(() => waits.includes(30_000));
            connection.close();
            return [...waits, give.length, sockets.length].map(String);
            """)
        #expect(found == ["1000", "30000", "2", "1"])
    }

    @Test("calls that are refused together ask once for a fresh token")
    func refusedTogether() async throws {
        let asked = try await Stack.runWithFakeGateway(
            """
            let asked = 0;
            const client = new Client(url, async (isRefused) => (isRefused ? `fresh ${++asked}` : "old"));
            let free;
            const late = new Promise((done) => { free = done; });
            gateway.answer = async (method, token) => {
              if (method === "DELETE") await late;
              return token === "fresh 1" ? Response.json({}) : new Response("{}", { status: 401 });
            };
            const calls = ["GET", "GET", "DELETE"].map((method) => client.call(method, "/v1/notifications"));
            await Promise.all(calls.slice(0, 2));
            // This one is refused after the others have a fresh token.
            free();
            await calls[2];
            return [String(asked)];
            """)
        #expect(asked == ["1"])
    }

    @Test("the inbox tries again while fresh tokens are refused, and signs out if it gets the refused token again")
    func refusedFreshTokens() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            const answer = globalThis.fetch;
            let isRefusing = true;
            globalThis.fetch = async (...call) => (isRefusing ? new Response("{}", { status: 401 }) : answer(...call));
            let [count, signedOut] = [0, 0];
            // Tokens that are signed in the same second are equal.
            let give = () => {
              count += 1;
              return `x.${btoa(JSON.stringify({ iat: Math.floor(Date.now() / 1000) }))}.y`;
            };
            const inbox = new Inbox(url, async () => give(), "en");
            inbox.addEventListener("signedOut", () => { signedOut += 1; });
            inbox.open();
            await until(() => count > 5 || signedOut);
            const found = [String(signedOut)];
            isRefusing = false;
            await until(() => sockets.length === 1);
            sockets[0].take(welcome);
            await until(() => inbox.store.isLoaded);
            isRefusing = true;
            give = () => "the same token";
            sockets[0].onclose({ code: 4401 });
            await until(() => inbox.state === "signedOut");
            inbox.close();
            return found;
            """)
        #expect(found == ["0"])
    }

    @Test("with a fresh token the inbox resumes; if that is another user's, it shows their list and joins their tabs")
    func otherUser() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            const tokens = ["first", "second", "third"];
            gateway.user = (token) => (token === "third" ? "eve" : "ada");
            gateway.answer = () => page(5, item("a", 5));
            const inbox = new Inbox(url, async () => tokens.shift(), "en");
            await opened(inbox);
            sockets[0].take(welcome);
            sockets[0].onclose({ code: 4401 });
            await until(() => sockets.length === 2);
            sockets[1].take(welcome);
            gateway.answer = () => page(2, item("b", 2));
            sockets[1].onclose({ code: 4401 });
            await until(() => sockets.length === 3);
            const found = [...sockets.map(({ resume }) => String(resume)), String(inbox.store.list().length)];
            const tab = new BroadcastChannel(`carillon ${url} eve`);
            const told = new Promise((done) => { tab.onmessage = ({ data }) => done(data.kind); });
            sockets[2].take(welcome);
            await until(() => inbox.store.version === 2);
            found.push(inbox.store.list().map(({ id }) => id).join());
            inbox.markAllRead();
            found.push(await told);
            inbox.close();
            tab.close();
            return found;
            """)
        #expect(found == ["5", "5", "null", "0", "b", "read"])
    }

    @Test("answers to calls of the last user change nothing in the next user's inbox and archive")
    func answersOfLastUser() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            gateway.user = (token) => token;
            gateway.answer = () => page(5, item("a", 5));
            const inbox = new Inbox(url, async (isRefused) => (isRefused ? "eve" : "ada"), "en");
            await opened(inbox);
            sockets[0].take(welcome);
            let free;
            const late = new Promise((done) => { free = done; });
            gateway.answer = async (method, token) => {
              if (token === "eve") return page(2, item("b", 2));
              await late;
              return method === "GET" ? page(5, item("a", 5)) : new Response("{}", { status: 503 });
            };
            const calls = [inbox.load(), inbox.loadArchive(true), inbox.remove("a")];
            sockets[0].onclose({ code: 4401 });
            await until(() => sockets.length === 2);
            free();
            await Promise.all(calls);
            const ids = (items) => items.map(({ id }) => id).join();
            const found = [ids(inbox.store.list()), ids(inbox.archive.items)];
            sockets[1].take({ ...welcome, version: 2 });
            await until(() => !inbox.isLoading);
            found.push(ids(inbox.store.list()));
            inbox.close();
            return found;
            """)
        #expect(found == ["b", "b", "b"])
    }

    @Test("if a fresh token is another user's, the settings are theirs, and push is looked at again")
    func settingsOfOtherUser() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            gateway.user = (token) => token;
            gateway.answer = (method, token, path) => {
              if (path === "/v1/settings") return Response.json({ email: `${token}@example.com` });
              if (path !== "/v1/preferences") return page(5);
              return Response.json({ types: [{ type: "a", channels: ["email"], email: true }] });
            };
            let starts = 0;
            navigator.serviceWorker.register = async () => {
              starts += 1;
              throw new Error("no worker");
            };
            const element = document.createElement("carillon-inbox");
            for (const [name, value] of Object.entries({ url, view: "page", worker: "/elsewhere/worker.js" })) {
              element.setAttribute(name, value);
            }
            element.tokenProvider = async (isRefused) => (isRefused ? "eve" : "ada");
            document.body.append(element);
            await until(() => sockets.length === 1 && starts > 0);
            sockets[0].take(welcome);
            element.shadowRoot.querySelector(".gear").click();
            const address = () => element.shadowRoot.querySelector("[name=email]")?.value;
            await until(address);
            const found = [address()];
            const before = starts;
            sockets[0].onclose({ code: 4401 });
            // On a busy machine, an answer that comes late makes the element look once more.
            await until(() => sockets.length > 1 && starts > before && address() !== found[0] && address());
            found.push(address());
            element.remove();
            return found;
            """)
        #expect(found == ["ada@example.com", "eve@example.com"])
    }

    @Test("a fault of the scripts, such as parts of two versions, is logged once while the socket tries again")
    func mixedVersions() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            const logged = [];
            console.error = (prefix, { name }) => logged.push(name);
            // The client of another version may have no `ticket`.
            const connection = new Connection({ url }, () => 7);
            const failed = (start) => new Promise((resolve) => {
              connection.addEventListener("state", ({ detail }) => detail === "offline" && resolve());
              start();
            });
            await failed(() => connection.open());
            await failed(() => connection.retry());
            connection.close();
            return logged;
            """)
        #expect(found == ["TypeError"])
    }

    @Test("a notification that moved back to the inbox elsewhere is marked as read, one in the archive is not")
    func movedBack() async throws {
        let calls = try await Stack.runWithFakeGateway(
            """
            const calls = [];
            gateway.answer = (method, token, path) => {
              if (method === "POST") {
                calls.push(path);
                return Response.json({ unread: 0, version: 7 });
              }
              return path.endsWith("/archived") ? page(5, item("a", 5)) : page(5);
            };
            const inbox = new Inbox(url, async () => "token", "en");
            await opened(inbox);
            sockets[0].take(welcome);
            await inbox.loadArchive(true);
            await inbox.markRead("a");
            calls.push("moved back");
            const notification = { ...item("a", 6), again: true };
            sockets[0].take({ type: "notification", version: 6, unread: 1, notification });
            await inbox.markRead("a");
            inbox.close();
            return calls;
            """)
        #expect(calls == ["moved back", "/v1/notifications/a/read"])
    }

    @Test("a count by category that failed is made again, and a late answer does not replace a newer one")
    func counts() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            const [{ Panel }, { en }] = await Promise.all(["inbox-panel", "texts"].map(load));
            const answers = [];
            gateway.count = () => new Promise((done) => { answers.push(done); });
            const unread = (count) => Response.json({ categories: { a: count } });
            const inbox = new Inbox(url, async () => "token", "en");
            await opened(inbox);
            sockets[0].take(welcome);
            const panel = new Panel(inbox, null, { language: "en", texts: en, feed: { category: "a", org: null } });
            panel.start();
            const shown = () => panel.element.querySelector("[data-filter=unread] .count").textContent;
            await until(() => answers.length === 1);
            sockets[0].take({ ...sync, version: 6 });
            await until(() => answers.length === 2);
            answers[1](unread(2));
            await until(() => shown() === "2");
            answers[0](unread(9));
            sockets[0].take({ ...sync, version: 7 });
            await until(() => answers.length === 3);
            const found = [shown()];
            answers[2](new Response("{}", { status: 503 }));
            // A change that leaves the version, such as after a reconnect.
            await until(() => {
              sockets[0].take({ ...sync, version: 7 });
              return answers.length === 4;
            });
            answers[3](unread(4));
            await until(() => shown() === "4");
            panel.stop();
            inbox.close();
            return found;
            """)
        #expect(found == ["2"])
    }

    @Test("the headings of days change at midnight")
    func midnight() async throws {
        let headings = try await Stack.runWithFakeGateway(
            """
            const names = ["inbox-list", "words", "texts"];
            const [{ ListView }, { Words }, { en }] = await Promise.all(names.map(load));
            let now = new Date().setHours(12, 0, 0, 0);
            const RealDate = Date;
            globalThis.Date = class extends RealDate {
              static now() { return now; }
              constructor(...given) { super(...(given.length ? given : [now])); }
            };
            const created = new Date().toISOString();
            gateway.answer = () => page(5, { ...item("a", 5), title: "a", type: "t", severity: "info", created_at: created });
            const inbox = new Inbox(url, async () => "token", "en");
            await opened(inbox);
            const view = new ListView(inbox, {
              language: "en", texts: en, words: new Words(), feed: {}, filter: () => ({}), isArchive: () => false,
            });
            view.render();
            const heading = () => view.element.querySelector(".day").textContent;
            const headings = [heading()];
            now += 86_400_000;
            view.tick();
            headings.push(heading());
            globalThis.Date = RealDate;
            inbox.close();
            return headings;
            """)
        #expect(headings == ["Today", "Yesterday"])
    }

    @Test("names from the catalog that failed to load are loaded with the next connection")
    func lateWords() async throws {
        let names = try await Stack.runWithFakeGateway(
            """
            const inbox = new Inbox(url, async () => "token", "en");
            gateway.words = () => new Response("{}", { status: 503 });
            await opened(inbox);
            gateway.words = () => Response.json({ types: [{ type: "order_paid", title: "Paid orders" }] });
            const loaded = new Promise((done) => inbox.addEventListener("words", done));
            sockets[0].take(welcome);
            await loaded;
            inbox.close();
            return [inbox.words.typeName("order_paid")];
            """)
        #expect(names == ["Paid orders"])
    }

    @Test("on return to an offline tab the inbox connects once, although several events report it")
    func returnToTab() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            const inbox = new Inbox(url, async () => "token", "en");
            await opened(inbox);
            sockets[0].take(welcome);
            let tickets = 0;
            gateway.user = () => {
              tickets += 1;
              return "ada";
            };
            sockets[0].onclose({ code: 1006 });
            document.dispatchEvent(new Event("visibilitychange"));
            window.dispatchEvent(new Event("focus"));
            await until(() => sockets.length === 2);
            inbox.close();
            return [document.visibilityState, String(tickets)];
            """)
        #expect(found == ["visible", "1"])
    }

    @Test("once the user is signed out, the inbox asks for no token when the network or the page comes back")
    func staysSignedOut() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            let asked = 0;
            let token = "token";
            const inbox = new Inbox(url, async () => {
              asked += 1;
              return token;
            }, "en");
            await opened(inbox);
            sockets[0].take(welcome);
            token = null;
            sockets[0].onclose({ code: 4401 });
            await until(() => inbox.state === "signedOut");
            const before = asked;
            for (const type of ["offline", "online", "pagehide"]) window.dispatchEvent(new Event(type));
            window.dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true }));
            const found = [inbox.state, String(asked - before)];
            token = "token";
            inbox.retry();
            await until(() => sockets.length === 2);
            inbox.close();
            return found;
            """)
        #expect(found == ["signedOut", "0"])
    }

    @Test("a socket that does not open, or says nothing, is replaced")
    func silentSocket() async throws {
        let resumed = try await Stack.runWithFakeGateway(
            """
            Object.assign(Connection, { probeInterval: 10, probePatience: 10 });
            const connection = new Connection({ url, ticket: async () => ({ ticket: "one" }) }, () => 7);
            connection.open();
            await until(() => sockets.length === 1);
            sockets[0].readyState = 0;
            await until(() => sockets.length === 3);
            connection.close();
            return sockets.map(({ resume }) => resume);
            """)
        #expect(resumed == ["7", "7", "7"])
    }

    @Test("an inbox opens although its page gives no token at first, and then loads all of it")
    func lateToken() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            let failures = 3;
            const token = async () => {
              if (failures-- > 0) throw new Error("no network");
              return "token";
            };
            const inbox = new Inbox(url, token, "en");
            const found = [await opened(inbox), sockets[0].resume];
            sockets[0].take({ type: "notification", version: 7, unread: 2, notification: item("b", 7) });
            found.push(inbox.store.isLoaded);
            gateway.answer = () => page(7, item("b", 7), item("a", 6));
            sockets[0].take(welcome);
            await until(() => inbox.store.list().length === 2 && inbox.store.isLoaded);
            inbox.close();
            return found.map(String);
            """)
        #expect(found == ["true", "null", "false"])
    }

    @Test("a change whose answer is lost is undone, and the inbox read again")
    func lostAnswer() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            gateway.answer = () => page(5, item("a", 5));
            const inbox = new Inbox(url, async () => "token", "en");
            await opened(inbox);
            sockets[0].take(welcome);
            gateway.answer = (method) => {
              if (method === "POST") throw new TypeError("the connection was lost");
              return page(6, item("a", 6, "2026-01-01T00:00:00Z"));
            };
            const isSaved = await inbox.markRead("a");
            await until(() => inbox.store.version === 6);
            inbox.close();
            return [String(isSaved), inbox.store.find("a").read_at];
            """)
        #expect(found == ["false", "2026-01-01T00:00:00Z"])
    }

    @Test("the user's actions go on if the page is left")
    func actionsOfLeftPage() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            const answer = globalThis.fetch;
            const calls = [];
            globalThis.fetch = (address, options) => {
              calls.push(options);
              return answer(address, options);
            };
            gateway.answer = (method, token, path) =>
              path === "/v1/preferences" ? Response.json({ types: [] }) : page(5, item("a", 5));
            const inbox = new Inbox(url, async () => "token", "en");
            await inbox.load();
            calls.splice(0);
            await Promise.all([
              inbox.markUnread("a"), inbox.markRead("b"), inbox.markAllRead(), inbox.remove("a"), inbox.removeRead(),
              inbox.moveToArchive("a"), inbox.snooze("a", new Date()), inbox.restore("a"), inbox.mute("invoice"),
              inbox.prefer({ type: "invoice", push: true }), inbox.opened("b"), inbox.acted("b", "done"),
            ]);
            inbox.close();
            const changes = calls.filter(({ method }) => method !== "GET");
            return [changes.length, changes.filter(({ keepalive }) => keepalive).length].map(String);
            """)
        #expect(found == ["14", "14"])
    }

    @Test(
        "after a refused change the counts are the gateway's, also if a message or a page came before the refusal",
        arguments: [
            #"sockets[0].take({ type: "notification", version: 6, unread: 2, notification: item("b", 6) })"#,
            "await inbox.load()",
        ]
    )
    func refusedChange(_ overtaking: String) async throws {
        let counts = try await Stack.runWithFakeGateway(
            """
            gateway.answer = () => page(5, item("a", 5));
            const inbox = new Inbox(url, async () => "token", "en");
            await opened(inbox);
            sockets[0].take(welcome);
            let answer;
            gateway.answer = (method) => {
              if (method === "POST") return new Promise((done) => { answer = done; });
              return page(6, item("b", 6), item("a", 5));
            };
            const change = inbox.snooze("a", new Date());
            await until(() => answer);
            \(overtaking);
            answer(new Response("{}", { status: 422 }));
            const isSaved = await change;
            await until(() => !inbox.isLoading);
            inbox.close();
            return [isSaved, inbox.store.unread, inbox.store.total].map(String);
            """)
        #expect(counts == ["false", "2", "2"])
    }

    @Test("a channel that could not be switched off stays on when another is switched off")
    func failedSwitch() async throws {
        let wishes = try await Stack.runWithFakeGateway(
            """
            const names = ["inbox-settings", "words", "texts"];
            const [{ SettingsView }, { Words }, { en }] = await Promise.all(names.map(load));
            const sent = [];
            const call = async (method, path, body) => {
              const type = { type: "a", channels: ["in_app", "push"], in_app: true, push: true };
              if (method === "GET") return path === "/v1/settings" ? {} : { types: [type] };
              sent.push(body.types[0]);
              if (sent.length === 1) throw new Error("no network");
              return {};
            };
            const inbox = { client: { call }, words: new Words() };
            const view = new SettingsView(inbox, null, { texts: en, language: "en", tell() {} });
            document.body.append(view.element);
            await view.load();
            const [inApp, push] = view.element.querySelectorAll(".type-row input");
            inApp.click();
            await until(() => sent.length === 1 && !inApp.ariaDisabled);
            push.click();
            await until(() => sent.length === 2);
            return sent.map((one) => `${one.in_app} ${one.push}`);
            """)
        #expect(wishes == ["false undefined", "undefined false"], "each call changes one channel")
    }
}
