// Carillon · SignalREndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1
import Protocols

/// A SignalR hub on connections: negotiation, WebSockets, Server-Sent Events and long polling.
package struct SignalREndpoint: TransportEndpoint {
    let hub: any SignalRHub
    let node: SignalRNode
    /// Makes ids that cannot be guessed.
    let makeID: @Sendable () -> String

    package init(
        hub: any SignalRHub,
        configuration: SignalREndpointConfiguration,
        makeID: @escaping @Sendable () -> String
    ) {
        self.hub = hub
        self.node = SignalRNode(configuration: configuration)
        self.makeID = makeID
    }

    var configuration: SignalREndpointConfiguration { self.node.configuration }

    package var maximumBody: Int { self.configuration.webSocket.maximumMessage }

    /// Its clients send them unless told otherwise; who calls, a token alone says.
    package var allowsCredentials: Bool { true }

    package func claims(_ path: Substring) -> Bool {
        path == self.configuration.path || self.isNegotiation(path) || path == "\(self.configuration.path)/"
    }

    func isNegotiation(_ path: Substring) -> Bool { path == "\(self.configuration.path)/negotiate" }

    package func refusal(_ status: HTTPResponseStatus, reason: String) -> TransportRefusal {
        TransportRefusal(status, headers: ["content-type": SignalRResponse.plainText], body: Array(reason.utf8))
    }

    /// A request's query; names count whatever their case, as in ASP.NET.
    ///
    /// - Throws: ``TransportRefusal`` 400 if it cannot be read.
    func query(_ head: HTTPRequestHead) throws(TransportRefusal) -> RequestQuery {
        do throws(QueryFault) {
            return try RequestQuery(target: head.uri, ignoresCase: true)
        } catch {
            throw self.refusal(.badRequest, reason: error.description)
        }
    }

    private func refusal(_ response: SignalRResponse) -> TransportRefusal {
        TransportRefusal(
            HTTPResponseStatus(statusCode: response.status),
            headers: ["content-type": response.contentType],
            body: response.body
        )
    }

    // MARK: WebSockets

    package func admit(_ head: HTTPRequestHead, from address: SocketAddress?) async throws -> WebSocketAdmission {
        let caller = SignalRConnectRequest(
            query: try self.query(head), authorization: head.headers.first(name: "authorization"))
        let permit = try await self.hub.admit(
            SignalRCaller(accessToken: caller.accessToken, head: head, address: address)
        )
        let entry = caller.id.flatMap { self.node.directory.entry($0, owner: permit.owner) }
        let request = SignalRHubRequest(method: "GET", id: caller.id, wantsWebSocket: true, accept: nil)
        switch entry {
        case .offer(let offer):
            let standing = SignalRHubRequest.Standing(transport: nil, isAttached: false, canReattach: false)
            let verdict = request.verdict(standing, transports: self.configuration.transports)
            guard case .attach = verdict, let id = caller.id else { throw self.refusal(verdict) }
            return self.begin(id, offer, permit)
        case .connection(let session, _):
            let standing = try await session.ask { $0.standing }.get()
            let verdict = request.verdict(standing, transports: self.configuration.transports)
            guard case .reattach = verdict else { throw self.refusal(verdict) }
            return self.admission { eventLoop in
                SignalRSocket(
                    number: self.node.directory.nextNumber(),
                    session: session,
                    eventLoop: eventLoop,
                    renewal: permit
                )
            }
        case nil:
            let isForeign = caller.id != nil && self.acceptsForeign(caller.id)
            let own = isForeign ? SignalRHubRequest(method: "GET", id: nil, wantsWebSocket: true, accept: nil) : request
            let verdict = own.verdict(nil, transports: self.configuration.transports)
            guard case .create = verdict else { throw self.refusal(verdict) }
            let offer = SignalRDirectory.Offer(
                connectionID: self.makeID(),
                owner: permit.owner,
                // A client speaks the version for it only if another node has offered it.
                usesStatefulReconnect: isForeign && self.configuration.allowsStatefulReconnect
            )
            // It can be come back to under its id, unless that is somebody else's here.
            let id = caller.id.flatMap { isForeign && self.node.directory.isFree($0) ? $0 : nil }
            return self.begin(id ?? self.makeID(), offer, permit)
        }
    }

    private func acceptsForeign(_ id: String?) -> Bool {
        self.configuration.acceptsForeignWebSockets && (id?.utf8.count ?? 0) <= 128
    }

    private func refusal(_ verdict: SignalRHubRequest.Verdict) -> TransportRefusal {
        if case .refuse(let response) = verdict { return self.refusal(response) }
        return self.refusal(.conflict, reason: "")
    }

    private func begin(_ id: String, _ offer: SignalRDirectory.Offer, _ permit: SignalRPermit) -> WebSocketAdmission {
        self.admission { eventLoop in
            guard
                let session = self.node.begin(
                    id: id,
                    offer: offer,
                    transport: .webSockets,
                    permit: permit,
                    on: eventLoop
                )
            else { return nil }
            return SignalRSocket(
                number: self.node.directory.nextNumber(),
                session: LoopReference(session, eventLoop: eventLoop),
                eventLoop: eventLoop
            )
        }
    }

    private func admission(
        _ open: @escaping @Sendable (any EventLoop) -> (any WebSocketApplication)?
    ) -> WebSocketAdmission {
        WebSocketAdmission(limits: self.configuration.webSocket, open: open)
    }
}
