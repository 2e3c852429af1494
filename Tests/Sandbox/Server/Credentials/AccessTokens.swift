// Carillon · AccessTokens.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Synchronization

/// The OAuth access tokens that were given out.
///
/// At most 10,000 live: beyond that the one to expire first is dropped.
final class AccessTokens: Sendable {
    /// What Google grants, in seconds.
    static let lifetime = 3599
    private static let limit = 10_000

    private struct Desk {
        var asked = 0
        var issued = 0
        var fault: TokenFault?
    }

    private struct Grant {
        let project: String
        let end: Date
    }

    /// What each token is good for, by the `Authorization` value that carries it.
    private let live = Mutex<[String: Grant]>([:])
    private let desk = Mutex(Desk())

    /// What becomes of requests; nil for tokens.
    var fault: TokenFault? {
        get { self.desk.withLock { $0.fault } }
        set { self.desk.withLock { $0.fault = newValue } }
    }

    /// How many valid requests there were, and how many tokens were given out.
    var counts: (asked: Int, issued: Int) { self.desk.withLock { ($0.asked, $0.issued) } }

    /// Counts a valid request and tells what becomes of it.
    func ask() -> TokenFault? {
        self.desk.withLock { desk in
            desk.asked += 1
            return desk.fault
        }
    }

    /// Makes a new token for a project.
    func issue(for project: String, at now: Date) -> String {
        let random = (0..<8).map { _ in String(UInt64.random(in: .min ... .max), radix: 36) }
        let token = "ya29.c." + random.joined(separator: "-")
        self.desk.withLock { $0.issued += 1 }
        self.live.withLock { live in
            if live.count >= Self.limit {
                live = live.filter { $0.value.end > now }
                if live.count >= Self.limit, let first = live.min(by: { $0.value.end < $1.value.end }) {
                    live.removeValue(forKey: first.key)
                }
            }
            live["Bearer " + token] = Grant(project: project, end: now.addingTimeInterval(Double(Self.lifetime)))
        }
        return token
    }

    /// The project whose live token an `Authorization` value carries; nil if it carries none.
    func project(of authorization: String, at now: Date) -> String? {
        let key: String
        if authorization.hasPrefix("Bearer ") {
            key = authorization
        } else if authorization.prefix(7).lowercased() == "bearer " {
            key = "Bearer " + authorization.dropFirst(7)
        } else {
            return nil
        }
        return self.live.withLock { live in live[key].flatMap { $0.end > now ? $0.project : nil } }
    }

    /// Forgets them all.
    func revokeAll() {
        self.live.withLock { $0.removeAll() }
    }
}
