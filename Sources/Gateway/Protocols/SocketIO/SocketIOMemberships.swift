// Carillon · SocketIOMemberships.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The namespaces of one connection.
///
/// Nearly every connection has only the default one, which is stored inline; others cost an
/// allocation.
struct SocketIOMemberships: Sendable {
    private struct Entry {
        let namespace: ExactText
        var membership: SocketIOMembership
    }

    private var root: SocketIOMembership?
    private var others: [Entry] = []

    var count: Int { (self.root == nil ? 0 : 1) + self.others.count }

    /// All namespaces, the default one first.
    var all: [(namespace: String, membership: SocketIOMembership)] {
        let root = self.root.map { [(namespace: SocketIOPacket.defaultNamespace, membership: $0)] } ?? []
        return root + self.others.map { (namespace: $0.namespace.text, membership: $0.membership) }
    }

    subscript(_ namespace: String) -> SocketIOMembership? {
        get {
            guard namespace != SocketIOPacket.defaultNamespace else { return self.root }
            let name = ExactText(namespace)
            return self.others.first { $0.namespace == name }?.membership
        }
        set {
            guard namespace != SocketIOPacket.defaultNamespace else {
                self.root = newValue
                return
            }
            let name = ExactText(namespace)
            let index = self.others.firstIndex { $0.namespace == name }
            switch (index, newValue) {
            case (let index?, let value?): self.others[index].membership = value
            case (let index?, nil): self.others.remove(at: index)
            case (nil, let value?): self.others.append(Entry(namespace: name, membership: value))
            case (nil, nil): break
            }
            if self.others.isEmpty { self.others = [] }
        }
    }

    /// Returns the namespace of an undecided request.
    func namespace(of ticket: SocketIOConnectRequest.Ticket) -> String? {
        self.all.first { $0.membership.ticket == ticket && !$0.membership.isJoined }?.namespace
    }
}

/// A connection's state in one namespace.
struct SocketIOMembership: Sendable {
    let ticket: SocketIOConnectRequest.Ticket
    /// Whether the owner knows the client.
    var isIdentified = false
    /// False while the owner decides.
    var isJoined = false
}
