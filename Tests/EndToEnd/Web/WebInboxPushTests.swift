// Carillon · WebInboxPushTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

/// Web Push of the inbox, in a real browser with a simulated push service.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled))
struct WebInboxPushTests {
    /// Defines service workers that do not cover the page, a push service, and clients of users.
    ///
    /// `registered` and `removed` are the calls of clients, and `told` the messages to workers. A
    /// call to register waits for `held`. It fails with `fault`: before it registers the device if
    /// the fault has a kind, or else after that.
    /// The tokens name their users in another claim than `sub`.
    private static let fakes = """
        const { Push } = await import("/web/inbox-push.js");
        const worker = "/elsewhere/worker.js";
        const scopeOf = (url) => new URL("./", new URL(url, location.href)).href;
        let count = 0;
        const newManager = () => {
          const manager = {
            known: null,
            getSubscription: async () => manager.known,
            async subscribe({ applicationServerKey }) {
              manager.known ??= {
                endpoint: String(++count), options: { applicationServerKey: applicationServerKey.buffer },
                unsubscribe: async () => { manager.known = null; },
              };
              return manager.known;
            },
          };
          return manager;
        };
        const told = [];
        const active = { postMessage: ({ kind }) => told.push(kind) };
        const registrations = new Map();
        const register = async (url) => {
          const scope = scopeOf(url);
          if (!registrations.has(scope)) registrations.set(scope, { active, scope, pushManager: newManager() });
          return registrations.get(scope);
        };
        const { pushManager } = await register(worker);
        Object.defineProperty(navigator, "serviceWorker", { value: {
          ready: new Promise(() => {}), register, getRegistration: async (url) => registrations.get(scopeOf(url)),
          addEventListener() {},
        } });
        Object.defineProperty(Notification, "permission", { value: "granted" });
        Notification.requestPermission = async () => "granted";
        const registered = [];
        const devices = [];
        const removed = [];
        let isDown = false;
        let vapidKey = "AQID";
        let isRegistering = false;
        let held = null;
        let fault = null;
        const push = (user, url = worker) => new Push({
          token: async () => `e30.${btoa(JSON.stringify({ nameid: user }))}.e30`,
          user: async () => user,
          async call(method, path, body) {
            if (path === "/v1/web-push/key") return { key: vapidKey };
            if (method === "DELETE") return void removed.push(decodeURIComponent(path.split("device_id=")[1]));
            if (path !== "/v1/devices") return null;
            if (isDown) throw new Error("no network");
            isRegistering = true;
            await held;
            if (fault?.kind) throw fault;
            devices.push(body.device_id);
            registered.push(`${user} ${JSON.parse(body.token).endpoint}`);
            if (fault) throw fault;
          },
        }, url);
        """

    /// Runs a script with the fakes, and returns the texts that it returns.
    private func run(_ script: String) async throws -> [String]? {
        try await Stack.runScript("return (async () => { \(Self.fakes)\n\(script) })()").strings
    }

    @Test("a page registers its device again when that is due, and shows push as on only if that succeeds")
    func renewal() async throws {
        let found = try await self.run(
            """
            await push("ada").start();
            const states = [await push("ada").switchOn()];
            await push("ada").start();
            const { renewal } = Push;
            Push.renewal = 0;
            await push("ada").start();
            isDown = true;
            states.push(await push("ada").state());
            isDown = false;
            states.push(await push("ada").state());
            Push.renewal = renewal;
            // The browser ends the subscription.
            pushManager.known = null;
            await push("ada").start();
            states.push(await push("ada").state(), await push("ada").switchOff());
            await push("ada").start();
            states.push(await push("ada").state());
            return [...states, ...registered];
            """)
        #expect(found == ["on", "off", "on", "on", "off", "off", "ada 1", "ada 1", "ada 1", "ada 2"])
    }

    @Test("a browser subscribes again when the page starts after the gateway has got another key")
    func otherKey() async throws {
        let found = try await self.run(
            """
            await push("ada").switchOn();
            vapidKey = "BAUG";
            await push("ada").start();
            const key = new Uint8Array(pushManager.known.options.applicationServerKey);
            return [await push("ada").state(), key.join(), ...registered];
            """)
        #expect(found == ["on", "4,5,6", "ada 1", "ada 2"])
    }

    @Test("the next user of a browser sees push as off, and none of the last user's pushes")
    func nextUser() async throws {
        let found = try await self.run(
            """
            await push("ada").switchOn();
            const states = [await push("bob").state(), String(pushManager.known)];
            states.push(await push("ada").state(), await push("bob").switchOn(), await push("bob").state());
            return [...states, ...told, ...registered];
            """)
        #expect(found == ["off", "null", "off", "on", "on", "forget", "ada 1", "bob 2"])
    }

    @Test("a device whose registration got no answer is renewed at the next start, or ended for another user")
    func lostAnswer() async throws {
        let found = try await self.run(
            """
            const failure = ({ message }) => message;
            const states = [];
            for (const user of ["ada", "bob"]) {
              fault = new Error("no answer");
              states.push(await push("ada").switchOn().catch(failure));
              fault = null;
              states.push(await push(user).state(), String(pushManager.known === null));
              await push("ada").switchOff();
            }
            return [...states, ...registered];
            """)
        #expect(found == ["no answer", "on", "false", "no answer", "off", "true", "ada 1", "ada 1", "ada 2"])
    }

    @Test("a registration that the gateway refuses leaves push as it was")
    func refusedRegistration() async throws {
        let found = try await self.run(
            """
            const refusal = Object.assign(new Error("refused"), { kind: "refused", status: 422 });
            const failure = ({ message }) => message;
            fault = refusal;
            const states = [await push("ada").switchOn().catch(failure)];
            fault = null;
            states.push(await push("ada").state(), await push("ada").switchOn());
            fault = refusal;
            states.push(await push("bob").switchOn().catch(failure));
            fault = Object.assign(new Error("signed out"), { kind: "signedOut", status: 0 });
            states.push(await push("bob").switchOn().catch(failure));
            fault = null;
            states.push(await push("ada").state(), await push("bob").state(), String(pushManager.known));
            return [...states, ...registered];
            """)
        #expect(found == ["refused", "off", "on", "refused", "signed out", "on", "off", "null", "ada 1"])
    }

    @Test("an element that stays open registers its device again when it reconnects after a day")
    func openPage() async throws {
        let found = try await Stack.runWithFakeGateway(
            """
            \(Self.fakes)
            await push("ada").switchOn();
            const calls = [];
            gateway.answer = (method, token, path) => {
              if (path === "/v1/notifications") return page(5);
              calls.push(`${method} ${path}`);
              return path === "/v1/web-push/key" ? Response.json({ key: vapidKey }) : new Response(null, { status: 204 });
            };
            await import("/carillon.js");
            const element = document.createElement("carillon-inbox");
            element.setAttribute("url", url);
            element.setAttribute("worker", worker);
            element.token = "token";
            document.body.append(element);
            const connect = async (count) => {
              await until(() => sockets.length === count);
              sockets.at(-1).take(welcome);
              await new Promise((next) => setTimeout(next));
            };
            await connect(1);
            await until(() => calls.length > 0);
            window.dispatchEvent(new Event("offline"));
            await connect(2);
            const { renewal } = Push;
            Push.renewal = 0;
            window.dispatchEvent(new Event("offline"));
            await connect(3);
            await until(() => calls.some((call) => call.startsWith("POST")));
            element.remove();
            Push.renewal = renewal;
            return calls;
            """)
        #expect(found == ["GET /v1/web-push/key", "GET /v1/web-push/key", "POST /v1/devices"])
    }

    @Test("an element that could not end the last user's pushes tries again when it is online")
    func retriedStart() async throws {
        let found = try await self.run(
            """
            await push("ada").switchOn();
            const { start } = Push.prototype;
            const starts = [];
            Push.prototype.start = async function () {
              const isDone = await start.call(this);
              starts.push(String(isDone), String(pushManager.known === null));
              return isDone;
            };
            const { fetch } = window;
            let isRefusing = true;
            window.fetch = async (url, options) => isRefusing && url.endsWith("/v1/socket-tickets")
              ? new Response("{}", { status: 503 }) : fetch(url, options);
            await import("/carillon.js");
            const element = document.createElement("carillon-inbox");
            element.setAttribute("worker", worker);
            element.token = "\(Stack.token(user: "bob"))";
            document.body.append(element);
            const until = async (isTrue) => {
              while (!isTrue()) await new Promise((next) => setTimeout(next, 1));
            };
            await until(() => starts.length > 0);
            const first = starts.slice(0, 2);
            isRefusing = false;
            await until(() => starts.at(-1) === "true");
            return [...first, ...starts.slice(-2), ...told.filter((kind) => kind === "forget")];
            """)
        #expect(found == ["false", "false", "true", "true", "forget"])
    }

    @Test("a device that is switched off stays off if another element registers it meanwhile")
    func switchOffDuringRenewal() async throws {
        let found = try await self.run(
            """
            await push("ada").switchOn();
            const { renewal } = Push;
            Push.renewal = 0;
            isRegistering = false;
            let free;
            held = new Promise((done) => { free = done; });
            const until = async (isTrue) => {
              while (!(await isTrue())) await new Promise((next) => setTimeout(next, 1));
            };
            const renewing = push("ada").start();
            await until(() => isRegistering);
            let isOff = false;
            const off = push("ada").switchOff().then(() => { isOff = true; });
            await until(async () => isOff || (await navigator.locks.query()).pending.length > 0);
            free();
            await Promise.all([renewing, off]);
            Push.renewal = renewal;
            return [String(pushManager.known), await push("ada").state(), ...registered];
            """)
        #expect(found == ["null", "off", "ada 1", "ada 1"])
    }

    @Test("a device is switched off although the browser's subscription never ends in another element")
    func switchOffDuringHangingSubscription() async throws {
        let found = try await self.run(
            """
            await push("ada").switchOn();
            const { Client } = await import("/web/inbox-client.js");
            Client.patience = 10;
            const { renewal } = Push;
            Push.renewal = 0;
            let isHanging = false;
            pushManager.subscribe = () => new Promise(() => { isHanging = true; });
            const renewing = push("ada").start();
            while (!isHanging) await new Promise((next) => setTimeout(next, 1));
            const states = [await push("ada").switchOff()];
            await renewing;
            Push.renewal = renewal;
            states.push(String(pushManager.known), await push("ada").state(), removed.join() === devices[0]);
            return [...states.map(String), ...registered];
            """)
        #expect(found == ["off", "null", "off", "true", "ada 1"])
    }

    @Test("workers of different folders have their own subscriptions and devices")
    func otherWorkers() async throws {
        let found = try await self.run(
            """
            await push("ada").switchOn();
            await push("bob", "/bob/worker.js").switchOn();
            const states = [await push("ada").state(), await push("bob", "/bob/worker.js").state()];
            await push("ada", "/more/worker.js?icons").switchOn();
            await push("ada").start();
            // A new version of the worker.
            await push("ada", "/more/worker.js?icons=2").start();
            states.push(new Set(devices).size);
            await push("ada").switchOff();
            states.push(await push("ada", "/more/worker.js").state(), removed.join() === devices[0]);
            return [...states.map(String), ...registered];
            """)
        #expect(found == ["on", "on", "3", "on", "true", "ada 1", "bob 2", "ada 3"])
    }

    @Test("push can be switched off while the browser's storage is full, and with a damaged note")
    func fullStorage() async throws {
        let found = try await self.run(
            """
            await push("ada").switchOn();
            const { setItem } = Storage.prototype;
            Storage.prototype.setItem = () => { throw new DOMException("full", "QuotaExceededError"); };
            const states = [await push("ada").switchOff(), removed.join() === devices.join()];
            states.push(await push("ada").state());
            Storage.prototype.setItem = setItem;
            states.push(await push("ada").switchOn());
            const name = Object.keys(localStorage).find((one) => one.startsWith("carillon.registration"));
            localStorage.setItem(name, "{");
            states.push(await push("ada").state(), await push("ada").switchOn(), await push("ada").state());
            return [...states.map(String), ...registered];
            """)
        #expect(found == ["off", "true", "off", "on", "off", "on", "on", "ada 1", "ada 2", "ada 2"])
    }

    @Test("push works with a worker that does not cover the page; the site's own notifications stay open")
    func otherScope() async throws {
        try await Stack.withBrowser { _, gateway, browser in
            let url = "http://127.0.0.1:\(gateway.port)"
            let plain = HTTPStub.Answer(body: "<!DOCTYPE html><title>Shop</title>", type: "text/html")
            try await HTTPStub.with(plain) { stub in
                try await browser.open(stub.url)
                try await browser.grantNotifications()
                stub.answer(HTTPStub.Answer(body: "importScripts('\(url)/sw.js');", type: "text/javascript"))
                let state = try await browser.run(
                    """
                    return (async () => {
                      const { Push } = await import("\(url)/web/inbox-push.js");
                      PushManager.prototype.subscribe = async () => ({ endpoint: "one" });
                      const call = async () => ({ key: "AQID" });
                      const client = { token: async () => "e30.e30.e30", user: async () => "ada", call };
                      return new Push(client, "/elsewhere/worker.js").switchOn();
                    })()
                    """)
                #expect(state == .string("on"))
                try await browser.run(
                    """
                    return (async () => {
                      const { Inbox } = await import("\(url)/web/inbox.js");
                      window.worker = await navigator.serviceWorker.getRegistration("/elsewhere/");
                      await worker.showNotification("ours", { data: { id: "1", urls: {} } });
                      await worker.showNotification("theirs", { data: { id: "2" } });
                      const inbox = new Inbox("\(url)", async () => null, "en");
                      inbox.worker = "/elsewhere/worker.js";
                      await inbox.markAllRead();
                    })()
                    """)
                try await browser.wait(
                    for: "only ours is closed",
                    "(await worker.getNotifications()).map(({ title }) => title).join() === 'theirs'")
            }
        }
    }
}
