// Carillon · MetricsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Sandbox
import Support
import Testing

@testable import HTTP

/// The metrics pages match the documentation, and the alert rules and dashboard match the metrics.
@Suite(.timeLimit(.minutes(10)))
struct MetricsTests {
    @Test("both services expose exactly the metrics, kinds, labels and help of docs/monitoring.md")
    func table() async throws {
        let table = try MetricsTable()
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            let metrics = try await dispatcher.waitForLine("ready ").dropFirst("ready ".count)
            // Uses some labels.
            try await gateway.register(user: "ada", platform: "android", token: "phone")
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "Hello")])
            try await stack.append([("user", "ada"), ("type", "no_such_type")])
            try await eventually("it is pushed, and the other one dead-lettered") {
                let isPushed = stack.pushed()["phone"] == ["Hello"]
                return try await stack.deadReasons().count == 1 && isPushed
            }
            let pages = [
                "gateway": "http://127.0.0.1:\(gateway.port)/metrics", "dispatcher": "\(metrics)/metrics",
            ]
            for (service, url) in pages {
                let listed = try #require(table.rows[service])
                let printed = try await MetricsText.page(url, stack).families
                #expect(listed.count > 40)
                #expect(Set(printed.keys).subtracting(listed.keys).isEmpty, "\(service) prints what is not listed")
                #expect(Set(listed.keys).subtracting(printed.keys).isEmpty, "\(service) does not print what is listed")
                for (name, row) in printed {
                    #expect(row.kind == listed[name]?.kind, "\(name)")
                    #expect(row.help == listed[name]?.help, "\(name)")
                    // A metric without samples shows no labels.
                    if !row.labels.isEmpty { #expect(row.labels == listed[name]?.labels, "\(name)") }
                }
            }
            // Otherwise `increase()` would miss the first event.
            for (service, series) in [
                ("dispatcher", #"carillon_provider_misconfigured{provider="fcm",app="default"}"#),
                ("dispatcher", #"carillon_deliveries_held{provider="fcm",reason="rate"}"#),
                ("dispatcher", #"carillon_webhooks_dropped{reason="full"}"#),
                ("dispatcher", #"carillon_catalog_reloads{outcome="refused"}"#),
                ("gateway", #"carillon_connections_refused{reason="memory"}"#),
                ("gateway", #"carillon_inbox_pages{from="kept"}"#),
                ("gateway", #"carillon_standby_pages{outcome="failed"}"#),
            ] {
                let url = try #require(pages[service])
                let samples = try await MetricsText.page(url, stack).samples
                #expect(samples[series] == 0, "\(series)")
            }
        }
    }

    @Test("a gateway reports backlogs, workers and Redis, even without a dispatcher")
    func survey() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "Hello")])
            let gateway = try await stack.startGateway()
            let url = "http://127.0.0.1:\(gateway.port)/metrics"
            let lag = #"carillon_stream_lag{stream="jobs",lane="normal"}"#
            let page = try await eventualValue("the first look") {
                let page = try await MetricsText.page(url, stack)
                let hasMemory = (page.samples["carillon_redis_memory_bytes"] ?? 0) > 0
                return hasMemory && page.samples[lag] != nil ? page : nil
            }
            #expect(page.samples[#"carillon_stream_length{stream="jobs",lane="normal"}"#] == 1)
            #expect(page.samples[lag] == 1)
            #expect(page.samples[#"carillon_stream_oldest_seconds{stream="jobs",lane="normal"}"#] != nil)
            #expect(page.samples["carillon_dispatchers_alive"] == 0)
            #expect(page.samples["carillon_dependency_up{dependency=\"redis\"}"] == 1)
            #expect(page.samples["carillon_dependency_up{dependency=\"postgres\"}"] == 1)
            #expect((page.samples["process_resident_memory_bytes"] ?? 0) > 1_000_000)
            #expect((page.samples["process_open_fds"] ?? 0) > 5)
            #expect((page.samples["process_max_fds"] ?? 0) > 100)

            _ = try await stack.startDispatcher()
            try await eventually("the job is taken") { try await !stack.statuses(user: "ada").isEmpty }
            // Its first look is at once, the next of the other gateway some seconds later.
            let other = try await stack.startGateway()
            try await eventually("the dispatcher is seen, and has taken the job") {
                let later = try await MetricsText.page("http://127.0.0.1:\(other.port)/metrics", stack).samples
                return later["carillon_dispatchers_alive"] == 1 && later["carillon_gateways_alive", default: 0] >= 1
                    && later[lag] == 0
            }
        }
    }

    @Test("operators' paths and pages count as no calls, and a failed probe adds no line to the log")
    func probes() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            func counted() async throws -> [String: Double] {
                try await MetricsText.page("http://127.0.0.1:\(gateway.port)/metrics", stack).samples
                    .filter { $0.key.hasPrefix("carillon_calls_answered{") && $0.value > 0 }
            }
            for path in ["/", "/admin", "/web/page.css", "/openapi.json", "/favicon.ico", "/healthz", "/readyz"] {
                _ = try await gateway.call(.get, path, token: nil)
            }
            try await stack.redis.stall()
            try await eventually("a probe fails") {
                try await gateway.call(.get, "/readyz", token: nil).status == 503
            }
            stack.redis.resume()
            #expect(try await counted().isEmpty)
            #expect(!gateway.process.errors().contains("request answered"))
            for path in ["/v1/notifications", "/v1/nothing", "/api/notifications"] {
                _ = try await gateway.call(.get, path, token: nil)
            }
            #expect(try await counted() == [#"carillon_calls_answered{class="4xx"}"#: 3])
        }
    }

    @Test("a request for a stream or a hub without a credential counts as refused")
    func refusedCredentials() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            #expect(try await gateway.call(.get, "/v1/stream", token: nil).status == 401)
            #expect(try await gateway.call(.post, "\(TestSignalR.path)/negotiate", token: nil).status == 401)
            let page = try await MetricsText.page("http://127.0.0.1:\(gateway.port)/metrics", stack)
            #expect(page.samples["carillon_sockets_refused"] == 2)
        }
    }

    @Test(
        "both programs report the limit of open files that they have raised",
        arguments: [("gateway", "serve"), ("dispatcher", "run")])
    func files(program: String, command: String) async throws {
        try await Stack.with { stack in
            let process = try await ChildProcess.spawn(
                "prlimit", ["--nofile=512:", TestProducts.path(program), command], name: "limited",
                environment: stack.environment, directory: stack.directory.path)
            let url = try await process.waitForLine("ready ").dropFirst("ready ".count)
            let page = try await MetricsText.page("\(url)/metrics", stack)
            let limits = try String(contentsOfFile: "/proc/\(process.identifier)/limits", encoding: .utf8)
            let line = try #require(limits.split(separator: "\n").first { $0.hasPrefix("Max open files") })
            // The words of the line: its name, the soft limit, the hard limit.
            let hard = try #require(line.split(separator: " ").dropFirst(4).first)
            #expect(page.samples["process_max_fds"] == Double(hard))
            #expect(try await process.stop() == .code(0))
        }
    }

    @Test("accepted, failed and in-flight deliveries are counted, and an open breaker is shown")
    func deliveries() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            let metrics = try await dispatcher.waitForLine("ready ").dropFirst("ready ".count)
            func value(_ name: String, _ labels: String...) async throws -> Double {
                let samples = try await MetricsText.page("\(metrics)/metrics", stack).samples
                let parts = labels + [#"provider="fcm""#]
                return samples.first { key, _ in
                    key.hasPrefix(name + "{") && parts.allSatisfy { key.contains($0) }
                }?.value ?? 0
            }
            func push(_ tokens: [String]) async throws {
                for token in tokens { try await gateway.register(user: token, platform: "android", token: token) }
                // In one job, because the breaker counts the failures of ten seconds.
                let users = tokens.map { #""\#($0)""# }.joined(separator: ",")
                try await stack.append([("users", "[\(users)]"), ("type", "payment_received"), ("title", "x")])
            }
            #expect(try await value("carillon_provider_in_flight") == 0)
            #expect(try await value("carillon_provider_breaker") == 0)
            try await push(["phone", "tablet", "unregistered-1", "silent-1"])
            try await eventually("two are accepted and one failed") {
                let accepted = try await value("carillon_deliveries_answered", #"outcome="accepted""#)
                let failed = try await value("carillon_deliveries_failures", #"reason="UNREGISTERED""#)
                return accepted == 2 && failed == 1
            }
            try await eventually("one is in flight") { try await value("carillon_provider_in_flight") == 1 }
            try await push((0..<12).map { "internal-\($0)" })
            try await eventually("the breaker is open") { try await value("carillon_provider_breaker") == 2 }
            try await eventually("the failures that opened it are counted") {
                let failed = try await value("carillon_deliveries_failures", #"reason="INTERNAL""#)
                let retried = try await value("carillon_deliveries_answered", #"outcome="retry""#)
                return failed >= 10 && retried >= 10
            }
            #expect(try await value("carillon_deliveries_answered", #"outcome="accepted""#) == 2)
        }
    }

    @Test("a slow or limiting provider shows its waiting deliveries, their age and when it resumes")
    func waiting() async throws {
        let pause = 300
        var configuration = SandboxConfiguration()
        configuration.slowPause = SlowPause(.seconds(60))
        configuration.retryAfter = pause
        try await Stack.with(sandbox: configuration, settings: Stack.shortLease) { [configuration] stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            let metrics = try await dispatcher.waitForLine("ready ").dropFirst("ready ".count)
            let token = Stack.token(user: "boss", scope: .admin)
            func value(_ name: String) async throws -> Double {
                try await MetricsText.page("\(metrics)/metrics", stack).samples["\(name){provider=\"fcm\"}"] ?? 0
            }
            func fcmWay() async throws -> JSONValue? {
                let answer = try await gateway.call(.get, "/v1/admin/providers", token: token)
                return answer.body["providers"]?.array?.first { $0["provider"]?.string == "fcm" }?["ways"]?.array?.first
            }
            func longestWait() async throws -> Int64? {
                let answer = try await gateway.call(.get, "/v1/admin/streams", token: token)
                let streams = (answer.body["streams"]?.array ?? []).filter { $0["provider"]?.string == "fcm" }
                return streams.compactMap { $0["waited_seconds"]?.integer }.max()
            }
            func push(_ phone: String) async throws {
                try await gateway.register(user: phone, platform: "android", token: phone)
                try await stack.append([("user", phone), ("type", "payment_received"), ("title", phone)])
            }
            #expect(try await value("carillon_deliveries_duration_count") == 0)
            let start = ContinuousClock.now
            try await push("slow-1")
            // It waits from when it was appended; its call may begin later.
            var call: ContinuousClock.Instant?
            try await eventually("one is in flight for a while, and is shown as waiting") {
                guard try await fcmWay()?["in_flight"]?.integer == 1 else { return false }
                let since = call ?? .now
                call = since
                let wait = try await longestWait() ?? 0
                return .now - since >= .seconds(1) && wait >= 2
            }
            try await eventually("it is answered") {
                // A call that had timed out is repeated.
                configuration.slowPause.end()
                return try await value("carillon_deliveries_duration_count") >= 1
            }
            let seconds = try await value("carillon_deliveries_duration_sum")
            #expect(seconds >= 1 && Duration.seconds(seconds) <= ContinuousClock.now - start)
            try await eventually("nothing waits any more") {
                configuration.slowPause.end()
                let way = try await fcmWay()
                let wait = try await longestWait()
                return wait == nil && way?["in_flight"]?.integer == 0 && way?["open_until"] == .null
            }

            let before = Schedules.now()
            try await push("quota-1")
            let until = try await eventualValue("the breaker is open") { () async throws -> Timestamp? in
                let way = try await fcmWay()
                guard way?["breaker"]?.string == "open" else { return nil }
                return way?["open_until"]?.string.flatMap { Timestamp(rfc3339: $0) }
            }
            #expect(until - before >= .seconds(pause - 1) && until - Schedules.now() < .seconds(pause + 60))
        }
    }

    @Test("deliveries to a broken provider count as waiting since they were appended, across retries")
    func broken() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let count = 14
            for number in 0..<count {
                let phone = "internal-\(number)"
                try await gateway.register(user: phone, platform: "android", token: phone)
                try await stack.append([("user", phone), ("type", "payment_received"), ("title", phone)])
            }
            // As if they had been appended a minute ago; then each is taken once more.
            let since = Schedules.now() + .seconds(-60)
            try await eventually("all wait for a retry, or are held back") {
                try await stack.waiting(since: since, makesOlder: true) == count
            }
            try await stack.makeDue(.fcm)
            try await eventually("all are set aside again, and have kept their age") {
                try await stack.waiting(since: since) == count
            }
            // A gateway looks when it starts, and every 15 s.
            let other = try await stack.startGateway(name: "other")
            let labels = #"{stream="fcm",lane="critical"}"#
            try await eventually("a gateway says that all of them wait, and for how long") {
                let samples = try await MetricsText.page("http://127.0.0.1:\(other.port)/metrics", stack).samples
                let waiting = ["carillon_stream_length", "carillon_stream_retries"].compactMap { samples[$0 + labels] }
                return waiting.reduce(0, +) >= Double(count)
                    && (samples["carillon_stream_oldest_seconds" + labels] ?? 0) >= 60
            }
            let admin = Stack.token(user: "root", scope: .admin)
            let streams = try await gateway.call(.get, "/v1/admin/streams", token: admin).body["streams"]?.array
            let stream = streams?.first { $0["name"]?.string == "carillon:{fcm}:deliveries:critical" }
            #expect(stream?["lane"]?.string == "critical" && stream?["provider"]?.string == "fcm")
            #expect((stream?["waited_seconds"]?.integer ?? 0) >= 60)
        }
    }

    @Test("a removed app has no deliveries in flight")
    func goneApp() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let file = stack.directory.path + "/apps.yaml"
            func write(_ app: String) throws {
                let fcm = "{credentials: \(stack.sandbox.serviceAccountPath), endpoint: \"\(stack.sandbox.url)\"}"
                try "apps: {\(app): {fcm: \(fcm)}}".write(toFile: file, atomically: true, encoding: .utf8)
            }
            try write("news")
            let gateway = try await stack.startGateway()
            let answer = try await gateway.call(
                .post, "/v1/devices", token: Stack.token(user: "ada"),
                json: #"{"platform":"android","token":"silent-1","name":"phone","app":"news"}"#)
            #expect(answer.status == 201)
            let dispatcher = try await stack.startDispatcher(environment: ["APPS": file])
            let metrics = try await dispatcher.waitForLine("ready ").dropFirst("ready ".count)
            func inFlight() async throws -> Double? {
                let samples = try await MetricsText.page("\(metrics)/metrics", stack).samples
                return samples.first { key, _ in
                    key.hasPrefix("carillon_provider_in_flight{") && key.contains(#"app="news""#)
                }?.value
            }
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "Hello")])
            try await eventually("one is in flight") { try await inFlight() == 1 }
            try write("other")
            dispatcher.send(SIGHUP)
            try await eventually("the app is removed") { try await inFlight() == 0 }
        }
    }

    @Test(
        "alert rules and dashboard use only existing metrics",
        arguments: [
            "deploy/prometheus/carillon.rules.yaml", "deploy/grafana/carillon.json",
        ])
    func asked(file: String) throws {
        let names = try MetricsTable().names
        let asked = Set(
            try Stack.text(file).matches(of: #/\b(?:carillon|process)_[a-z_]+/#).map { String($0.output) })
        #expect(asked.count > 15)
        #expect(asked.subtracting(names).isEmpty)
    }

    @Test(
        "the dashboard shows what waits behind a provider that is out",
        arguments: [
            "max(carillon_stream_oldest_seconds{lane!=\\\"bulk\\\"})",
            "max by (stream) (sum by (instance, stream) (carillon_stream_retries))",
            "max by (stream) (sum by (instance, stream) (carillon_stream_length{stream!~\\\"jobs|overflow\\\"}))",
            "max by (provider, app) (carillon_provider_breaker)",
        ])
    func waiting(query: String) throws {
        #expect(try Stack.text("deploy/grafana/carillon.json").contains(query))
    }

    @Test("each alert has a runbook, and each runbook an alert")
    func runbooks() throws {
        let rules = try Stack.text("deploy/prometheus/carillon.rules.yaml")
        let alerts = Set(rules.matches(of: #/- alert: (\w+)/#).map { String($0.output.1) })
        let links = rules.matches(of: #/runbook_url: '.+\/operating\.md#(\w+)'/#).map { String($0.output.1) }
        let headings = Set(
            try Stack.text("docs/operating.md").matches(of: #/\n### (Carillon\w+)\n/#).map {
                String($0.output.1)
            })
        #expect(alerts.count > 15)
        #expect(alerts == headings)
        #expect(links.count == alerts.count)
        #expect(Set(links) == Set(alerts.map { $0.lowercased() }))
    }
}

extension Stack {
    /// Counts the critical FCM deliveries that are set aside until later, and wait since `moment`
    /// or longer.
    ///
    /// - Parameter makesOlder: whether to move those forward first that wait for less.
    fileprivate func waiting(since moment: Timestamp, makesOlder: Bool = false) async throws -> Int {
        let script = """
            local count = 0
            for _, key in ipairs(KEYS) do
                local members = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
                for place = 1, #members, 2 do
                    local due = members[place + 1]
                    local head, since, user = string.match(members[place], '^(1 %S+ %S+ %d+ %a*)(%d+) (.*)$')
                    if since and tonumber(due) > 0 then
                        if ARGV[2] == '1' and tonumber(since) > tonumber(ARGV[1]) then
                            redis.call('ZREM', key, members[place])
                            redis.call('ZADD', key, due, head .. ARGV[1] .. ' ' .. user)
                            since = ARGV[1]
                        end
                        if tonumber(since) <= tonumber(ARGV[1]) then count = count + 1 end
                    end
                end
            end
            return count
            """
        let reply = try await self.connection.send(
            "EVAL", .text(script), 2, "carillon:{fcm}:retry:critical", "carillon:{fcm}:held:critical:default",
            .integer(moment.milliseconds), makesOlder ? "1" : "0")
        return Int(try reply.integer())
    }
}
