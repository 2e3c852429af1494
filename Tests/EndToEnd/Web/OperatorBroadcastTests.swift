// Carillon · OperatorBroadcastTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// Composing a broadcast on the operator's page, the catalog, and simulations.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled))
struct OperatorBroadcastTests {
    private static let catalog = """
        types:
          news_flash:
            title: {en: News flash, de: Eilmeldung}
            severity: info
            delivery: push
            category: news
            icon: megaphone
            actor: author
            channels: [in_app, push, email]
            templates:
              en: {title: "{{headline}}", body: "Read it **now**", email_html: "<h1>{{headline}}</h1>"}
              de: {title: "{{headline}}", body: "Jetzt lesen", email_html: "<h1>{{headline}}</h1>"}
          invoice_created:
            icon: document
            severity: info
            delivery: in_app
        """

    /// Waits until the preview of a channel contains all these words.
    private static func waitForPreview(
        _ channel: String,
        _ page: OperatorPage,
        shows words: String...
    ) async throws {
        for word in words { try await page.wait("[data-channel=\(channel)]", shows: word) }
    }

    /// Waits until the preview of the inbox has a picture, by its selector.
    private static func waitForPicture(_ selector: String, _ page: OperatorPage) async throws {
        try await page.browser.wait(
            for: "the inbox's preview has \(selector)",
            "\(OperatorPage.part(".inbox-sample")).shadowRoot.querySelector('\(selector)')")
    }

    private static func waitForAudience(_ count: Int, _ page: OperatorPage) async throws {
        try await page.wait("[data-audience=\"\(count)\"]", counts: 1)
    }

    @Test("a broadcast is composed, previewed in every channel, and sent only with the number of its users")
    func compose() async throws {
        try await Stack.withOperator(at: "broadcasts/new?type=news_flash", catalog: Self.catalog) { stack, _, page in
            let browser = page.browser
            try await stack.query("INSERT INTO carillon.users (user_id) VALUES ('ada'), ('bob'), ('cid')")
            let type = "\(OperatorPage.part(".compose-form [name=type]")).value"
            try await browser.wait(for: "the link's type is chosen", "\(type) === 'news_flash'")
            try await browser.wait(
                for: "an id is suggested", "\(OperatorPage.part("[name=id]")).value.startsWith('broadcast-')")
            try await page.enter("news-1", into: ".compose-form [name=id]")

            // The type's texts lack a value.
            try await page.enter("{}", into: "[name=vars]")
            try await page.click(".compose-form .primary")
            try await page.wait(".compose-form", shows: "headline")
            try await page.wait(".compose-result[hidden]", counts: 1)

            try await page.enter(#"{"headline": "Extra & more"}"#, into: "[name=vars]")
            // JavaScript would round this number.
            try await page.enter(#"{"order": 1234567890123456789}"#, into: "[name=data]")
            try await page.click(".compose-form .primary")
            try await page.wait(".compose-form", shows: "1234567890123456789 does not fit a JavaScript number.")
            try await page.enter(#"{"order": 1, "order": 2}"#, into: "[name=data]")
            try await page.click(".compose-form .primary")
            try await page.wait(".compose-form", shows: "A name appears twice")
            try await page.wait(".compose-result[hidden]", counts: 1)
            try await page.enter(#"{"author": {"name": "Cleo Roth"}}"#, into: "[name=data]")
            try await page.click(".compose-form .primary")
            try await Self.waitForAudience(3, page)
            try await Self.waitForPreview("in_app", page, shows: "Extra & more", "Read it now")
            try await Self.waitForPicture(".avatar > .initials", page)
            try await Self.waitForPicture(".avatar-badge > .icon-megaphone", page)
            try await Self.waitForPreview("push", page, shows: "Extra & more", "Read it now")
            try await Self.waitForPreview("email", page, shows: "Extra & more")
            try await browser.wait(
                for: "the mail is in a frame that may do nothing",
                """
                (({ sandbox, srcdoc }) => sandbox.length === 0 && srcdoc.includes('<h1>Extra &amp; more</h1>'))(
                  \(OperatorPage.part("[data-channel=email] iframe.mail-frame[sandbox]")))
                """)
            try await page.click(".compose-result .segments input[value=de]")
            try await Self.waitForPreview("in_app", page, shows: "Jetzt lesen")

            // Only what was previewed can be sent.
            try await browser.type(" ", into: OperatorPage.part("[name=vars]"))
            try await page.wait(".stale", shows: "Preview it again")
            try await page.wait(".send[aria-disabled=true]", counts: 1)
            try await page.click(".send")
            try await page.wait("dialog", counts: 0)
            try await page.click(".compose-form .primary")
            try await page.wait(".send:not([aria-disabled])", counts: 1)

            try await page.click(".send")
            try await page.waitForQuestion("Send it to 3 users?", "everyone, as news-1", "type the number of users: 3")
            try await page.enter("4", into: "dialog [name=typed]")
            try await page.click("dialog button[value=yes]")
            try await browser.wait(
                for: "a wrong number sends nothing",
                "\(OperatorPage.part("dialog")).open && !\(OperatorPage.part("dialog [name=typed]")).validity.valid")
            try await page.enter("3", into: "dialog [name=typed]")
            try await page.agree()
            try await page.waitForLink("#broadcasts")
            try await page.wait(".broadcast[data-job=\"news-1\"]", shows: "Everyone", "Extra & more", "News flash")
            try await eventually("all get it") {
                try await stack.query("SELECT 1 FROM carillon.notifications WHERE job_id = 'news-1'").count == 3
            }
            try await page.wait(".broadcast[data-job=\"news-1\"]", shows: "done", "3 stored of 3")

            // The same id with another text is given up, and the page says why.
            try await page.show("broadcasts/new?type=news_flash&id=news-1&vars=\(#"{"headline":"Other"}"#)")
            try await browser.wait(
                for: "the link fills the form", "\(OperatorPage.part(".compose-form [name=id]")).value === 'news-1'")
            try await browser.wait(for: "the types are known", "\(type) === 'news_flash'")
            try await page.click(".compose-form .primary")
            try await Self.waitForAudience(3, page)
            try await page.click(".send")
            try await page.enter("3", into: "dialog [name=typed]")
            try await page.agree()
            try await page.waitForLink("#broadcasts")
            try await eventually("it is a dead letter") {
                try await stack.query("SELECT 1 FROM carillon.dead_letters").count == 1
            }
            try await page.show("dead-letters")
            try await page.wait(".reason-group", shows: "id: was used before with other content")
            try await page.show("broadcasts")
            try await page.wait(".broadcast", counts: 1)
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a broadcast to a topic is for its subscribers, and an empty topic cannot be sent to")
    func topic() async throws {
        try await Stack.withOperator(at: "broadcasts/new?type=invoice_created", catalog: Self.catalog) {
            stack, gateway, page in
            let service = Broadcasts.service()
            for user in ["ada", "bob"] {
                let answer = try await gateway.call(.put, "/v1/topics/news/members/\(user)", token: service)
                #expect(answer.status == 204)
            }
            try await page.wait(".compose-form option[value=invoice_created]", counts: 1)
            try await page.click(".compose-form .segments input[value=topic]")
            try await page.enter("empty", into: ".compose-form [name=topic]")
            try await page.enter("Hello", into: ".compose-form [name=title]")
            try await page.enter("topic-1", into: ".compose-form [name=id]")
            try await page.click(".compose-form .primary")
            try await page.wait(".reach", shows: "No user has subscribed to this topic.")
            try await page.wait(".send[aria-disabled=true]", counts: 1)

            try await page.enter("news", into: ".compose-form [name=topic]")
            try await page.click(".compose-form .primary")
            try await Self.waitForAudience(2, page)
            try await Self.waitForPreview("in_app", page, shows: "Hello")
            try await Self.waitForPreview("push", page, shows: "Not on this channel.")
            try await Self.waitForPreview("email", page, shows: "Not on this channel.")
            try await page.waitForLink("#broadcasts/new?type=invoice_created&topic=news&title=Hello&id=topic-1")
            try await page.click(".send")
            try await page.waitForQuestion("Send it to 2 users?", "type the topic: news")
            try await page.enter("news", into: "dialog [name=typed]")
            try await page.agree()
            try await page.wait(".broadcast[data-job=\"topic-1\"]", shows: "Topic news", "2 stored of 2")
            #expect(try await stack.texts(user: "bob") == [["Hello", ""]])
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a broadcast that waits for its users' local time is cancelled from the list")
    func cancelScheduled() async throws {
        try await Stack.withOperator(at: "broadcasts", catalog: Self.catalog) { stack, gateway, page in
            try await stack.query("INSERT INTO carillon.users (user_id) VALUES ('ada'), ('bob')")
            let members = #""type":"invoice_created","title":"Later","deliver_local":"2099-06-01T08:30""#
            let sent = try await Broadcasts.post(gateway, #"{"id":"later","all":true,\#(members)}"#)
            #expect(sent.status == 202)
            let card = ".broadcast[data-job=later]"
            try await page.wait(card, shows: "done", "2 scheduled")
            try await page.wait("\(card) [data-order]", counts: 1)
            try await page.click("\(card) [data-order=cancel]")
            try await page.agree()
            try await page.wait(card, shows: "2 cancelled")
            try await page.wait("\(card) [data-order]", counts: 0)
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a list of broadcasts that takes long is read less often")
    func slow() async throws {
        try await Stack.withOperator(startsDispatcher: false) { _, _, page in
            // A second passes between two looks at the clock.
            try await page.browser.run(
                """
                let clock = 0;
                performance.now = () => (clock += 1000);
                const { setTimeout } = window;
                window.delays = [];
                window.setTimeout = (work, delay, ...rest) => {
                  window.delays.push(delay);
                  return setTimeout(work, delay, ...rest);
                };
                """)
            try await page.show("broadcasts")
            try await page.browser.wait(for: "the next look is later", "window.delays.includes(20000)")
            #expect(try await page.browser.run("return window.delays.includes(3000)") == .bool(false))
        }
    }

    @Test("a job whose notifications cannot be counted in time is shown without counts, and seldom counted again")
    func uncounted() async throws {
        try await Stack.withOperator(at: "broadcasts", catalog: Self.catalog) { stack, gateway, page in
            try await stack.query("INSERT INTO carillon.users (user_id) VALUES ('ada'), ('bob')")
            let sent = try await Broadcasts.post(
                gateway, #"{"id":"large","all":true,"type":"invoice_created","title":"Large"}"#)
            #expect(sent.status == 202)
            _ = try await Broadcasts.waitFor("done", gateway, "large")
            try await eventually("both are sent") {
                try await stack.query("SELECT 1 FROM carillon.notifications WHERE status = 'sent'").count == 2
            }
            try await stack.query(
                "UPDATE carillon.notifications SET sent_via = 'fcm', opened_at = now() WHERE user_id = 'ada'")
            // The first answer has no counts, as if they had taken too long.
            try await page.browser.run(
                """
                const { fetch } = window;
                window.asked = [];
                window.fetch = (address, options) => {
                  const { pathname, search } = new URL(address);
                  if (pathname !== "/v1/jobs/large") return fetch(address, options);
                  window.asked.push(search);
                  return fetch(window.asked.length === 1 ? `${address}?recipients=false` : address, options);
                };
                """)
            try await page.show("jobs/large")
            try await page.wait(".job-head", shows: "not counted", "2 stored of 2")
            try await page.wait(".job-numbers", shows: "too many notifications")
            try await page.browser.wait(
                for: "the next call skips the counts", "window.asked.includes('?recipients=false')")
            try await page.browser.run(
                """
                const { setTimeout } = window;
                window.setTimeout = (work, delay, ...rest) => setTimeout(work, Math.min(delay, 10), ...rest);
                """)
            try await page.wait(".job-numbers", shows: "How far it got")
            try await page.wait(".job-numbers .reach", shows: "Accepted by a provider1 (50%)", "Opened1 (50%)")
            let counted = "window.asked.slice(0, 31).filter((search) => !search).length"
            #expect(try await page.browser.run("return \(counted)").integer == 2)
            #expect(try await page.complaints() == [])
        }
    }

    @Test("the catalog is filtered, shows usage and advice, and previews a type with edited text")
    func catalog() async throws {
        try await Stack.withOperator(
            at: "deliveries", notifications: [("ada", "Hello")], catalog: Self.catalog
        ) { _, _, page in
            try await page.show("catalog")
            let row = "\(OperatorPage.part("td a[href=\"#catalog/invoice_created\"]")).closest('tr')"
            try await page.browser.wait(for: "the use is counted", "\(row).cells[7].textContent === '1'")
            try await eventually("all types are listed") { try await page.rows("Types").count == 2 }
            try await page.enter("flash", into: "[name=q]")
            try await eventually("one is listed") {
                let rows = try await page.rows("Types")
                return rows.count == 1 && rows.first?.first?.hasPrefix("news_flash") == true
                    && rows.first?[4] == "In app, Push, E-mail"
            }
            try await page.wait("#content", shows: "1 of 2 types match.")
            try await page.browser.press(Browser.Key.tab)
            try await page.waitForLink("#catalog?q=flash")
            try await page.browser.reload()
            try await eventually("the link keeps the filter") { try await page.rows("Types").count == 1 }

            // The button keeps the focus during the call, and the page says why the call failed.
            try await page.browser.run(
                """
                const { fetch } = window;
                window.fetch = (address, options) => {
                  if (!String(address).endsWith("/catalog/reload")) return fetch(address, options);
                  return new Promise((_, reject) => {
                    window.fail = () => {
                      window.fetch = fetch;
                      reject(new TypeError("the connection was lost"));
                    };
                  });
                };
                """)
            let reload = "\(OperatorPage.parts("button")).find((one) => one.textContent === 'Reload the files')"
            try await page.browser.click(reload)
            try await page.browser.wait(for: "the call is under way", "window.fail")
            let frame = "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
            try await page.browser.wait(
                for: "the button keeps the focus", "(\(frame), document.activeElement === \(reload))")
            try await page.browser.run("window.fail()")
            try await page.wait("#toast", shows: "the connection was lost")
            try await page.browser.wait(for: "the button works again", "!\(reload).ariaDisabled")

            try await page.wait(".advice", shows: "type invoice_created: has no title", "type news_flash: has e-mail")
            try await page.click(".advice li a[href=\"#catalog/invoice_created\"]")
            try await page.waitForLink("#catalog/invoice_created")
            try await Self.waitForPreview("in_app", page, shows: "A sample of the title")
            try await Self.waitForPicture(".avatar > .icon-document", page)
            try await page.enter("Invoice **9**", into: ".type-form [name=title]")
            try await page.click(".type-form .primary")
            let bold = OperatorPage.part("[data-channel=in_app] strong strong")
            try await page.browser.wait(for: "the inbox shows the marks", "\(bold).textContent === '9'")
            try await page.browser.reload()
            try await Self.waitForPreview("in_app", page, shows: "Invoice 9")
            try await page.click(".type-form a[href^=\"#broadcasts/new\"]")
            try await page.waitForLink("#broadcasts/new?type=invoice_created")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a link to a simulation shows each channel with the reason")
    func simulation() async throws {
        let link = "simulate/ada?type=invoice_created&title=Hello&presence=offline"
        try await Stack.withOperator(at: link, catalog: Self.catalog) { stack, _, page in
            try await eventually("each channel has a row") {
                let rows = try await page.rows("Channels")
                return rows.map { $0.prefix(2).joined(separator: " ") } == ["In app yes", "Push no", "E-mail no"]
                    && rows.last?.last == "the type has no such channel"
            }
            try await page.wait(".timeline", shows: "Store", "In app")
            try await page.choose("online", of: "[name=presence]")
            try await page.click(".simulate-form .primary")
            try await page.waitForLink("#simulate/ada?type=invoice_created&title=Hello&presence=online")
            try await page.browser.reload()
            try await page.wait(".timeline", shows: "Publish")
            try await eventually("the table is there again") { try await page.rows("Channels").count == 3 }
            #expect(try await stack.texts(user: "ada").isEmpty)
            #expect(try await page.complaints() == [])
        }
    }
}
