// Carillon · EdgeRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import NIOCore
import Protocols
import Storage

/// The scheduler's table `/rest/v1/user_push_tokens`; callers see only their own rows.
struct EdgeTokenRoutes {
    let devices: CompatibilityDevices
    private var services: APIServices { self.devices.services }

    func add(to groups: CompatibilityGroups) {
        let group = groups.group("rest/v1/user_push_tokens")
        group.get("", Self.list, self.list)
        group.post("", Self.upsert, self.upsert)
        group.patch("", Self.change, self.change)
        group.delete("", Self.remove, self.remove)
    }

    // MARK: Reading a request

    private static func query(_ request: Request) throws -> EdgeQuery {
        let fields: [RequestQuery.Field]
        do throws(QueryFault) {
            fields = try RequestQuery.fields(request.uri.query ?? "")
        } catch {
            throw Problem(
                .badRequest, error.description, faults: [JobFault(error.name, error.reason)], code: "PGRST100")
        }
        return try EdgeQuery(fields)
    }

    private static func preferences(_ request: Request) -> EdgePreferences {
        let name = HTTPField.Name("Prefer")
        return EdgePreferences(
            prefer: name.map { request.headers[values: $0] } ?? [],
            accept: request.headers[.accept]
        )
    }

    private func rows(_ user: String) async throws -> [EdgeRow] {
        // Leave out browsers on phones: the checks here know only the tokens of apps.
        try await self.devices.active(user: user)
            .filter { [.ios, .android].contains($0.platform) && [.apns, .fcm].contains($0.provider) }
            .map { EdgeRow(device: $0) }
    }

    // MARK: Calls

    private static let list = Operation(
        "edgeListTokens",
        "Edge scheduler: lists the caller's active devices as rows.",
        query: EdgeQuery.filters + EdgeQuery.page, headers: EdgePreferences.header,
        answers: [
            .ok(
                "The rows.", .edgeRows,
                headers: [
                    "Content-Range": .string(
                        "The range of rows or *, then the total if `Prefer` requests it, or *.")
                ]),
            406,
        ])

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        let query = try Self.query(request)
        let preferences = Self.preferences(request)
        let rows = query.matching(try await self.rows(try context.user()))
        let page = query.page(rows)
        try Self.requireSingle(page.count, preferences)
        var response = Self.answer(Array(page), query, preferences, status: .ok)
        let range = page.isEmpty ? "*" : "\(query.offset)-\(query.offset + page.count - 1)"
        response.headers[.contentRange] = "\(range)/\(preferences.counts ? String(rows.count) : "*")"
        return response
    }

    private static let upsert = Operation(
        "edgeUpsertTokens",
        "Edge scheduler: registers or renews devices, all or none; each counts as a call of the user.",
        query: EdgeQuery.select + [
            "on_conflict?": .string("Ignored: the token identifies a row."),
            "columns?": .string("Ignored."),
        ], headers: EdgePreferences.header,
        body: .anyOf(.edgeToken, .list(of: .edgeToken, min: 1, max: 100)),
        answers: [
            Answer(201, "Done; without a body unless `Prefer` requests the rows (`EdgeRows`)."),
            406,
        ])

    /// Inserts or updates rows: a known token keeps its id and the fields that the row leaves out.
    private func upsert(_ request: Request, _ context: APIContext) async throws -> Response {
        let caller = try context.requireCaller()
        let user = caller.user
        let query = try Self.query(request)
        let preferences = Self.preferences(request)
        let tokens = try EdgeRequests.tokens(try await FieldReader.lenientBody(request), user: user)
        try Self.requireSingle(tokens.count, preferences)
        // Each row is as much work as a call.
        self.services.identity.count(furtherCalls: tokens.count - 1, of: caller)
        let known = try await self.rows(user)
        let devices = tokens.map { token in
            let before = known.first { $0.device.isToken(token.token) && $0.device.platform == token.platform }?.device
            let registration = CompatibilityDevices.Registration(
                platform: token.platform,
                provider: token.platform == .ios ? .apns : .fcm,
                token: token.token,
                deviceID: token.deviceID ?? before?.deviceID,
                appVersion: token.appVersion ?? before?.appVersion,
                locale: token.locale ?? before?.locale
            )
            return self.devices.device(registration, user: user)
        }
        // An erasure may have begun since the body came; a later write would store the user again.
        do throws(TokenFault) {
            try await self.services.identity.credentials.recheck(caller)
        } catch {
            throw Problem(error)
        }
        let rows = try await self.services.users.register(devices).map { EdgeRow(device: $0) }
        guard preferences.returnsRows else { return Response(status: .created) }
        return Self.answer(rows, query, preferences, status: .created)
    }

    private static let change = Operation(
        "edgeChangeTokens",
        "Edge scheduler: changes the matching rows and updates when they were last seen. A filter is required.",
        query: EdgeQuery.filters + EdgeQuery.select, headers: EdgePreferences.header,
        body: .object([
            "user_id?": .string(max: JobLimits.user).orNull("The caller's own id."),
            "token?": .string(min: 0, max: 2048, pattern: "^[ -~]*$").orNull(
                "Printable ASCII, and no topic (/topics/…)."),
            "device_id?": .string.orNull("Cut to \(Device.longestName) characters."),
            "app_version?": .string.orNull("Cut to 64 characters."),
            "locale?": .lenientLocale.orNull,
            "last_seen_at?": .anything("Ignored: always now."),
        ])(
            "Absent fields stay, as does a null or empty token; null or empty text clears the others."
        ),
        answers: [
            .ok("The updated rows, if `Prefer` requests them.", .edgeRows),
            .done,
            406,
            409,
        ])

    private func change(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let query = try Self.filtered(request)
        let preferences = Self.preferences(request)
        var change = try EdgeRequests.change(try await FieldReader.lenientBody(request), user: user)
        let matching = query.matching(try await self.rows(user))
        try Self.requireSingle(matching.count, preferences)
        if let token = change.token {
            guard matching.count <= 1 else {
                throw Problem(.conflict, "a token belongs to one row, and the filter names \(matching.count)")
            }
            if let provider = matching.first?.device.provider {
                if provider == .apns { try EdgeRequests.requireAPNSToken(token) }
                change.token = Device.canonicalToken(token, of: provider)
            }
        }
        var rows: [EdgeRow] = []
        for row in matching {
            let device = try await self.services.users.touch(row.device.id, of: user, change: change)
            if let device { rows.append(EdgeRow(device: device)) }
        }
        guard preferences.returnsRows else { return Response(status: .noContent) }
        return Self.answer(rows, query, preferences, status: .ok)
    }

    private static let remove = Operation(
        "edgeRemoveTokens",
        "Edge scheduler: removes the matching rows. A filter is required.",
        query: EdgeQuery.filters + EdgeQuery.select, headers: EdgePreferences.header,
        answers: [.ok("The removed rows, if `Prefer` requests them.", .edgeRows), .done, 406])

    private func remove(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let query = try Self.filtered(request)
        let preferences = Self.preferences(request)
        let matching = query.matching(try await self.rows(user))
        try Self.requireSingle(matching.count, preferences)
        var rows: [EdgeRow] = []
        for row in matching
        where try await self.services.users.devices.remove(user: user, id: row.device.id) {
            rows.append(row)
        }
        guard preferences.returnsRows else { return Response(status: .noContent) }
        return Self.answer(rows, query, preferences, status: .ok)
    }

    /// Returns a query that has a filter.
    private static func filtered(_ request: Request) throws -> EdgeQuery {
        let query = try self.query(request)
        guard query.isFiltered else {
            throw Problem(.badRequest, "a filter is required, such as ?token=eq.…", code: "PGRST100")
        }
        guard !query.isPaged else {
            throw Problem(.badRequest, "limit, offset and order apply to GET only", code: "PGRST100")
        }
        return query
    }

    // MARK: Answering

    /// Checks that there is exactly one row if the client expects one, before anything changes.
    private static func requireSingle(_ count: Int, _ preferences: EdgePreferences) throws {
        guard preferences.isSingle, count != 1 else { return }
        // Clients parse these details.
        throw Problem(
            .notAcceptable, "one row is expected, and the result contains \(count) rows",
            details: "Results contain \(count) rows, application/vnd.pgrst.object+json requires 1 row")
    }

    private static func answer(
        _ rows: [EdgeRow],
        _ query: EdgeQuery,
        _ preferences: EdgePreferences,
        status: HTTPResponse.Status
    ) -> Response {
        var writer = JSONWriter(capacity: 256 * max(rows.count, 1))
        if preferences.isSingle, let row = rows.first {
            row.write(query.columns, to: &writer)
        } else {
            writer.beginArray()
            for row in rows { row.write(query.columns, to: &writer) }
            writer.endArray()
        }
        return Response.json(writer, status: status)
    }
}

/// The scheduler's `/rest/v1/notification_events`: events that clients report about their
/// notifications.
struct EdgeEventRoutes {
    let services: APIServices

    private static let record = Operation(
        "edgeRecordEvents",
        "Edge scheduler: records delivered or opened notifications, all or none; each counts as a call of the user.",
        body: .anyOf(.edgeEvent, .list(of: .edgeEvent, min: 1, max: 100)),
        answers: [Answer(201, "They are recorded; the first event of a kind counts."), 404])

    func add(to groups: CompatibilityGroups) {
        groups.group("rest/v1/notification_events").post("", Self.record, self.record)
    }

    /// Records all events or none.
    ///
    /// The first event of a kind counts; an opened notification counts as delivered.
    private func record(_ request: Request, _ context: APIContext) async throws -> Response {
        let caller = try context.requireCaller()
        let user = caller.user
        let events = try EdgeRequests.events(try await FieldReader.lenientBody(request))
        // Each event is as much work as a call.
        self.services.identity.count(furtherCalls: events.count - 1, of: caller)
        let known = try await self.services.inbox.store.known(user: user, ids: events.map(\.id))
        guard events.allSatisfy({ known.contains($0.id) }) else { throw Problem.noSuch("notification") }
        for id in known.sorted() { _ = try await self.services.inbox.service.markDelivered(user: user, id: id) }
        for id in Set(events.filter { $0.kind == .opened }.map(\.id)).sorted() {
            _ = try await self.services.inbox.service.markOpened(user: user, id: id)
        }
        return Response(status: .created)
    }
}
