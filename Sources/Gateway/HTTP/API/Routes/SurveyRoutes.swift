// Carillon · SurveyRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// Backlogs and live processes, for admins: `/v1/admin/streams` and `/v1/admin/nodes`.
struct SurveyRoutes {
    let base: GatewayBase

    func add(to routes: Routes) {
        routes.get("admin/streams", Self.streams, self.streams)
        routes.get("admin/nodes", Self.nodes, self.nodes)
    }

    private static let streams = Operation(
        "listStreams",
        "Returns the backlogs of the streams.",
        scope: .admin,
        answers: [.ok("The current state in Redis.", streamList.schema)])

    private static let streamList: Shape<[StreamShape]> = [
        "streams": .list(of: StreamShape.shape, max: 100) { $0 }
    ]

    private func streams(_ request: Request, _ context: APIContext) async throws -> Response {
        let streams = try await self.base.live.survey.streams()
        let now = try await self.base.live.survey.time()
        return .json(streams.map { StreamShape($0, now: now) }, as: Self.streamList)
    }

    private static let nodes = Operation(
        "listNodes",
        "Lists gateways and dispatchers.",
        scope: .admin,
        answers: [.ok("The current state in Redis.", nodeList.schema)])

    private static let nodeList: Shape<(gateways: [StreamSurvey.Node], dispatchers: [StreamSurvey.Worker])> = [
        "gateways": .list(
            of: [
                "id": .value(.string) { $0.id },
                "version": .value(.string) { $0.process?.version },
                "started_at": .value(.time) { $0.process?.startedAt },
                "alive": .value(.bool) { $0.isAlive },
                "connections": .value(
                    .count,
                    "Sockets and event streams at the last lease renewal, every five seconds; null if unknown."
                ) { $0.connections },
            ], max: 100_000
        ) { $0.gateways },
        "dispatchers": .list(
            of: [
                "name": .value(.string) { $0.name },
                "version": .value(.string) { $0.process?.version },
                "started_at": .value(.time) { $0.process?.startedAt },
                "alive": .value(.bool) { $0.isAlive },
                "pending": .value(.count) { $0.pending },
            ], max: 100_000
        ) { $0.dispatchers },
    ]

    private func nodes(_ request: Request, _ context: APIContext) async throws -> Response {
        let nodes = try await self.base.live.survey.nodes()
        let dispatchers = try await self.base.live.survey.dispatchers()
        return .json((nodes, dispatchers), as: Self.nodeList)
    }
}
