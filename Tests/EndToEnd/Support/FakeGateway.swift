// Carillon · FakeGateway.swift
// SPDX-License-Identifier: Apache-2.0

import Core

extension Stack {
    /// Defines a gateway inside the page: `gateway.answer` returns the answers about notifications.
    private static let fakeGateway = """
        const load = (name) => import(`/web/${name}.js`);
        const modules = ["inbox", "inbox-connection", "inbox-client"];
        const [{ Inbox }, { Connection }, { Client }] = await Promise.all(modules.map(load));
        Object.assign(Connection, { shortest: 10, longest: 10 });
        Object.defineProperty(navigator, "onLine", { value: true, writable: true });
        const url = "http://127.0.0.1";
        const until = async (isTrue) => { while (!isTrue()) await new Promise((next) => setTimeout(next, 1)); };
        const item = (id, version, read_at = null) => ({ id, version, read_at });
        const page = (version, ...notifications) => Response.json({
          version, notifications, next_cursor: notifications.at(-1)?.id ?? null, unread: notifications.length, total: 2,
        });
        const gateway = {
          answer: () => page(5), words: () => Response.json({}), count: () => Response.json({ categories: {} }),
          user: () => "ada",
        };
        globalThis.fetch = async (address, { method, headers }) => {
          const { pathname, searchParams } = new URL(address);
          const token = headers.authorization.slice(7);
          if (pathname === "/v1/socket-tickets") return Response.json({ ticket: "one", user: gateway.user(token) });
          if (pathname.endsWith("/unread-count")) return gateway.count();
          return pathname === "/v1/types" ? gateway.words() : gateway.answer(method, token, pathname, searchParams);
        };
        const sockets = [];
        globalThis.WebSocket = class {
          static OPEN = 1;
          readyState = 1;
          constructor(address) {
            this.resume = new URL(address).searchParams.get("resume");
            sockets.push(this);
          }
          take(frame) { this.onmessage({ data: JSON.stringify(frame) }); }
          send() {}
          close() {}
        };
        const opened = async (inbox) => {
          const isOpen = await inbox.open();
          await until(() => sockets.length === 1);
          return isOpen;
        };
        const welcome = { type: "welcome", version: 5 };
        const sync = { type: "sync", unread: 1, total: 2, notifications: [], deleted: [] };
        """

    /// Runs a script that uses the fake gateway, and returns the texts that it returns.
    static func runWithFakeGateway(_ script: String) async throws -> [String]? {
        try await Self.runScript("return (async () => { \(Self.fakeGateway)\n\(script) })()").strings
    }
}
