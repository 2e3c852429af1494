// Carillon · WebInboxPushTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// Web Push of the inbox, in a real browser with a simulated push service.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled))
struct WebInboxPushTests {
    /// Defines service workers that do not cover the page, a push service, and clients of users.
    ///
    /// `registered` and `removed` are the calls of clients, and `told` the messages to workers. A
    /// call to register waits for `held`.
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
            devices.push(body.device_id);
            registered.push(`${user} ${JSON.parse(body.token).endpoint}`);
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

    /// Runs `body` with another site's page whose worker imports the gateway's.
    ///
    /// A message to `worker` makes it get a push, or click one. `told` has its messages, and the
    /// badges of the app's icon.
    private static func withWorker(_ body: (Stack, Gateway, Browser) async throws -> Void) async throws {
        let host = try FreePort.next()
        try await Stack.withBrowser(environment: ["ALLOWED_ORIGINS": "http://127.0.0.1:\(host)"]) {
            stack, gateway, browser in
            let script = """
                importScripts("http://127.0.0.1:\(gateway.port)/sw.js");
                const tell = async (message) => {
                  for (const page of await clients.matchAll({ includeUncontrolled: true })) page.postMessage(message);
                };
                const setAppBadge = (badge) => tell({ badge });
                Object.assign(navigator, { setAppBadge, clearAppBadge: () => setAppBadge(0) });
                const display = registration.showNotification.bind(registration);
                registration.showNotification = async (title, options) => {
                  await display(title, options);
                  await tell({ shown: title });
                };
                addEventListener("message", async ({ data: { push, click } }) => {
                  if (push) dispatchEvent(new PushEvent("push", { data: JSON.stringify(push) }));
                  if (!click) return;
                  const shown = await registration.getNotifications();
                  const notification = shown.find(({ title }) => title === click);
                  dispatchEvent(new NotificationEvent("notificationclick", { notification }));
                });
                """
            let plain = HTTPStub.Answer(body: "<!DOCTYPE html><title>Shop</title>", type: "text/html")
            try await HTTPStub.with(plain, port: host) { stub in
                try await browser.open(stub.url)
                try await browser.grantNotifications()
                stub.answer(HTTPStub.Answer(body: script, type: "text/javascript"))
                try await browser.run(
                    """
                    window.told = [];
                    navigator.serviceWorker.addEventListener("message", ({ data }) => told.push(data));
                    navigator.serviceWorker.startMessages();
                    return navigator.serviceWorker.register("/worker.js").then(async () => {
                      window.worker = await navigator.serviceWorker.ready;
                    });
                    """)
                try await body(stack, gateway, browser)
            }
        }
    }

    /// A script for the number of clicks that the worker of `withWorker` keeps.
    private static let kept = "(await caches.open('carillon clicks').then((one) => one.keys())).length"

    @Test("the worker hands out a click once, and keeps it again if a page gives it back")
    func returnedClick() async throws {
        try await Self.withWorker { _, _, browser in
            try await browser.run("worker.active.postMessage({ push: { title: 'one', notification_id: '1' } })")
            try await browser.wait(for: "it is shown", "told.some(({ shown }) => shown === 'one')")
            try await browser.wait(
                for: "it is listed", "(await worker.getNotifications()).some(({ title }) => title === 'one')")
            try await browser.run("worker.active.postMessage({ click: 'one' })")
            try await browser.wait(for: "the click is kept", "\(Self.kept) === 1")
            try await browser.run("worker.active.postMessage({ kind: 'carillon-take-clicks' })")
            let clicks = "told.filter(({ kind }) => kind === 'carillon-clicked')"
            try await browser.wait(for: "the page has it", "\(clicks).length === 1 && \(Self.kept) === 0")
            try await browser.run("worker.active.postMessage(\(clicks)[0])")
            try await browser.wait(for: "the click is kept again", "\(Self.kept) === 1")
            try await browser.run("worker.active.postMessage({ kind: 'carillon-take-clicks' })")
            try await browser.wait(for: "the page has it again", "\(clicks).length === 2")
            let ids = try await browser.run("return \(clicks).map(({ id }) => id)")
            #expect(ids.strings == ["1", "1"])
        }
    }

    @Test("the badge of the app's icon falls when a push is read elsewhere")
    func badge() async throws {
        try await Self.withWorker { stack, gateway, browser in
            let url = "http://127.0.0.1:\(gateway.port)"
            let ada = CompatibilityClient(gateway, user: "ada")
            try await stack.notify("ada", "Invoice 9")
            try await ada.waitForCount(1)
            let id = try #require(try await ada.get("/v1/notifications").body["notifications"]?.texts("id").first)
            try await browser.run(
                """
                return import("\(url)/web/inbox.js").then(async ({ Inbox }) => {
                  window.inbox = new Inbox("\(url)", async () => "\(Stack.token(user: "ada"))", "en");
                  await inbox.open();
                  worker.active.postMessage({ push: { title: "Invoice 9", notification_id: "\(id)", badge: 1 } });
                });
                """)
            try await browser.wait(for: "the badge counts it", "told.some(({ badge }) => badge === 1)")
            try await browser.wait(for: "the inbox is online", "inbox.state === 'online'")
            let read = try await ada.send(.post, "/v1/notifications/\(id)/read")
            #expect(read.status == 200)
            try await browser.wait(for: "the badge is gone", "told.at(-1).badge === 0")
        }
    }

    @Test("at a logout the pushes on the screen, the badge and the clicks that no page has reported go")
    func logout() async throws {
        try await Self.withWorker { _, gateway, browser in
            try await browser.run(
                """
                return import("http://127.0.0.1:\(gateway.port)/web/inbox-push.js").then(async ({ Push }) => {
                  PushManager.prototype.subscribe = async () => ({ endpoint: "one" });
                  const call = async () => ({ key: "AQID" });
                  window.push = new Push({ token: async () => "e30.e30.e30", user: async () => "ada", call }, "/worker.js");
                  await push.switchOn();
                  for (const title of ["one", "two"]) {
                    worker.active.postMessage({ push: { title, notification_id: title, badge: 2 } });
                  }
                });
                """)
            let shown = "(await worker.getNotifications()).map(({ title }) => title).sort().join()"
            // A browser that is asked for notifications may drop one that it is about to show.
            try await browser.wait(for: "both are shown", "told.filter(({ shown }) => shown).length === 2")
            try await browser.wait(for: "both are listed", "\(shown) === 'one,two'")
            try await browser.run("worker.active.postMessage({ click: 'two' })")
            try await browser.wait(for: "the click is kept", "\(Self.kept) === 1")
            try await browser.run("return push.switchOff().then(() => null)")
            try await browser.wait(for: "nothing is shown", "\(shown) === ''")
            try await browser.wait(for: "the badge is gone", "told.some(({ badge }) => badge === 0)")
            try await browser.wait(for: "the click is gone", "!(await caches.has('carillon clicks'))")
            try await browser.run("worker.active.postMessage({ kind: 'carillon-take-clicks' })")
            try await browser.wait(for: "the worker has looked for clicks", "await caches.has('carillon clicks')")
            let clicks = try await browser.run("return told.filter(({ kind }) => kind === 'carillon-clicked').length")
            #expect(clicks == .number("0"))
        }
    }
}
