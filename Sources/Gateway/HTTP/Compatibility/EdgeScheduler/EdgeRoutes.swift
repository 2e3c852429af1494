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
    let devices: DeviceKeeper
    private var services: APIServices { self.devices.services }

    func add(to groups: CompatibilityGroups) {
        let group = groups.group("rest/v1/user_push_tokens")
        group.get(use: self.list)
        group.post(use: self.upsert)
        group.patch(use: self.change)
        group.delete(use: self.remove)
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
        try await self.devices.active(user: user).filter { [.ios, .android].contains($0.platform) }.map {
            EdgeRow(device: $0)
        }
    }

    // MARK: Calls

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

    /// Inserts or updates rows: a known token keeps its id and the fields that the row leaves out.
    private func upsert(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let query = try Self.query(request)
        let preferences = Self.preferences(request)
        let tokens = try EdgeRequests.tokens(try await RequestFields.readValue(request), user: user)
        try Self.requireSingle(tokens.count, preferences)
        let known = try await self.rows(user)
        var rows: [EdgeRow] = []
        for token in tokens {
            let before = known.first { $0.device.token == token.token && $0.device.platform == token.platform }?.device
            let registration = DeviceKeeper.Registration(
                platform: token.platform,
                provider: token.platform == .ios ? .apns : .fcm,
                token: token.token,
                deviceID: token.deviceID ?? before?.deviceID,
                appVersion: token.appVersion ?? before?.appVersion,
                locale: token.locale ?? before?.locale
            )
            rows.append(EdgeRow(device: try await self.devices.register(registration, user: user)))
        }
        guard preferences.returnsRows else { return Response(status: .created) }
        return Self.answer(rows, query, preferences, status: .created)
    }

    private func change(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let query = try Self.filtered(request)
        let preferences = Self.preferences(request)
        let change = try EdgeRequests.change(try await RequestFields.readValue(request), user: user)
        let matching = query.matching(try await self.rows(user))
        try Self.requireSingle(matching.count, preferences)
        if let token = change.token {
            guard matching.count <= 1 else {
                throw Problem(.conflict, "a token belongs to one row, and the filter names \(matching.count)")
            }
            if matching.first?.device.provider == .apns { try EdgeRequests.requireAPNSToken(token) }
        }
        var rows: [EdgeRow] = []
        for row in matching {
            let device = try await self.services.devices.touch(
                user: user,
                id: row.device.id,
                change: change,
                at: self.services.now()
            )
            if let device { rows.append(EdgeRow(device: device)) }
        }
        guard preferences.returnsRows else { return Answer.noContent }
        return Self.answer(rows, query, preferences, status: .ok)
    }

    private func remove(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let query = try Self.filtered(request)
        let preferences = Self.preferences(request)
        let matching = query.matching(try await self.rows(user))
        try Self.requireSingle(matching.count, preferences)
        var rows: [EdgeRow] = []
        for row in matching
        where try await self.services.devices.remove(user: user, id: row.device.id) {
            rows.append(row)
        }
        guard preferences.returnsRows else { return Answer.noContent }
        return Self.answer(rows, query, preferences, status: .ok)
    }

    /// Returns a query that has a filter.
    private static func filtered(_ request: Request) throws -> EdgeQuery {
        let query = try self.query(request)
        guard query.isFiltered else {
            throw Problem(.badRequest, "a filter is required, such as ?token=eq.…", code: "PGRST100")
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

    func add(to groups: CompatibilityGroups) {
        groups.group("rest/v1/notification_events").post(use: self.record)
    }

    /// Records all events or none.
    ///
    /// The first event of a kind counts; an opened notification counts as delivered.
    private func record(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let events = try EdgeRequests.events(try await RequestFields.readValue(request))
        let known = try await self.services.inbox.known(user: user, ids: events.map(\.id))
        guard events.allSatisfy({ known.contains($0.id) }) else { throw Answer.notFound }
        for id in known.sorted() { _ = try await self.services.inboxService.markDelivered(user: user, id: id) }
        for event in events where event.kind == .opened {
            _ = try await self.services.inboxService.markOpened(user: user, id: event.id)
        }
        return Response(status: .created)
    }
}
