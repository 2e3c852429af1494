// Carillon · WebInboxClickTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

/// Clicks on pushes and buttons, in a real browser with a gateway that the page plays.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled))
struct WebInboxClickTests {
    @Test("clicks on pushes are taken after a failed first load, and for an element that joins a loaded inbox")
    func clicksAfterFailedLoad() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            const calls = [];
            let isDown = true;
            gateway.answer = (method, token, path) => {
              calls.push(`${method} ${path}`);
              if (isDown) return new Response("{}", { status: 503 });
              return method === "GET" && path.endsWith("/x") ? Response.json(item("x", 1)) : page(5);
            };
            let taken = 0;
            const postMessage = ({ kind }) => { if (kind === "carillon-take-clicks") taken += 1; };
            navigator.serviceWorker.getRegistration = async () => ({ active: { postMessage } });
            const element = document.createElement("carillon-inbox");
            element.setAttribute("url", url);
            element.setAttribute("token", "token");
            const acted = new Promise((done) => {
              element.addEventListener("carillon-action", ({ detail }) => done(`${detail.notification.id} ${detail.action.id}`));
            });
            document.body.append(element);
            await until(() => sockets.length === 1);
            const found = [String(taken)];
            isDown = false;
            sockets[0].take(welcome);
            await until(() => taken > 0);
            const data = { kind: "carillon-clicked", id: "x", action: "done" };
            navigator.serviceWorker.dispatchEvent(new MessageEvent("message", { data }));
            found.push(await acted);
            await until(() => calls.includes("POST /v1/notifications/x/read"));
            taken = 0;
            const other = element.cloneNode();
            document.body.append(other);
            await until(() => taken > 0);
            element.remove();
            other.remove();
            return found;
            """)
        #expect(found == ["0", "x done"])
    }

    @Test("clicks on pushes wait while they cannot be reported, and one without an answer goes back to the worker")
    func clicksWhileOffline() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            let taken = 0;
            const kept = [];
            const postMessage = (message) => {
              if (message.kind === "carillon-take-clicks") taken += 1;
              if (message.kind === "carillon-clicked") kept.push(message);
            };
            navigator.serviceWorker.getRegistration = async () => ({ active: { postMessage } });
            const tell = (data) => navigator.serviceWorker.dispatchEvent(new MessageEvent("message", { data }));
            let isDown = false;
            gateway.answer = (method, token, path) => {
              if (isDown) throw new TypeError("no network");
              return method === "GET" && path.endsWith("/x") ? Response.json(item("x", 1)) : page(5);
            };
            const element = document.createElement("carillon-inbox");
            element.setAttribute("url", url);
            element.setAttribute("token", "token");
            const acted = [];
            element.addEventListener("carillon-action", ({ detail }) => acted.push(detail.action.id));
            document.body.append(element);
            await until(() => sockets.length === 1);
            sockets[0].take(welcome);
            const settle = () => new Promise((next) => setTimeout(next));
            await settle();
            navigator.onLine = false;
            window.dispatchEvent(new Event("offline"));
            taken = 0;
            tell({ kind: "carillon-clicks" });
            await settle();
            const found = [taken];
            navigator.onLine = true;
            window.dispatchEvent(new Event("online"));
            await until(() => sockets.length === 2);
            sockets[1].take(welcome);
            await until(() => taken > 0);
            found.push(taken);
            isDown = true;
            tell({ kind: "carillon-clicked", id: "x", action: "done" });
            await until(() => kept.length === 1);
            found.push(acted.length);
            isDown = false;
            tell(kept[0]);
            await until(() => acted.length === 1);
            element.remove();
            return [...found, acted[0], kept.length].map(String);
            """)
        #expect(found == ["0", "1", "0", "done", "1"])
    }

    @Test("a page hears of a button that the gateway accepts, also if the notification cannot be read")
    func unreadableNotification() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            const [kept, acted, answered] = [[], [], []];
            const postMessage = (message) => message.kind === "carillon-clicked" && kept.push(message.id);
            navigator.serviceWorker.getRegistration = async () => ({ active: { postMessage } });
            gateway.answer = (method, token, path) => {
              const id = path.split("/")[3];
              if (!id) return page(5);
              if (path.endsWith("/actions")) answered.push(id);
              const statuses = { expired: 401, unknown: 404, invalid: 422, archived: method === "GET" ? 404 : 200 };
              return new Response(null, { status: statuses[id] });
            };
            const element = document.createElement("carillon-inbox");
            element.setAttribute("url", url);
            let count = 0;
            element.tokenProvider = async () => `token ${++count}`;
            element.addEventListener("carillon-action", ({ detail }) => acted.push(JSON.stringify(detail)));
            document.body.append(element);
            await until(() => sockets.length === 1);
            sockets[0].take(welcome);
            for (const id of ["expired", "unknown", "invalid", "archived"]) {
              const data = { kind: "carillon-clicked", id, action: "done" };
              navigator.serviceWorker.dispatchEvent(new MessageEvent("message", { data }));
              await until(() => answered.includes(id));
            }
            await until(() => acted.length > 0 && kept.length > 0);
            element.remove();
            return [...acted, ...kept];
            """)
        #expect(found == [#"{"notification":{"id":"archived"},"action":{"id":"done"}}"#, "expired"])
    }

    @Test("the user is told of a button that could not be reported, but not of an opening")
    func lostReport() async throws {
        let faults = try await Stack.runWithFakeGateway(
            """
            gateway.answer = () => page(5, item("a", 5, "2026-01-01T00:00:00Z"));
            const inbox = new Inbox(url, async () => "token", "en");
            await opened(inbox);
            const faults = [];
            inbox.addEventListener("fault", ({ detail }) => faults.push(detail));
            gateway.answer = () => new Response("{}", { status: 422 });
            inbox.opened("a");
            inbox.acted("a", "done");
            await until(() => faults.length > 0);
            gateway.answer = () => { throw new TypeError("no network"); };
            inbox.acted("a", "done");
            await until(() => faults.length > 1);
            inbox.close();
            return faults;
            """)
        #expect(faults == ["refused", "notSaved"])
    }
}
