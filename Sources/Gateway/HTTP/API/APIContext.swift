// Carillon · APIContext.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Protocols

/// What a request carries through its handlers.
package struct APIContext: RequestContext {
    package var coreContext: CoreRequestContextStorage
    /// Who calls; set by ``IdentityMiddleware``.
    package var caller: Caller?

    package init(source: ApplicationRequestContextSource) {
        self.coreContext = CoreRequestContextStorage(source: source)
    }

    /// The path as its route has it, for the log: a part of the path itself may be a push token, and is never logged.
    var loggedPath: String { self.endpointPath ?? "NotFound" }

    /// The user who calls.
    ///
    /// - Throws: ``Problem`` 401 if nobody is known.
    package func user() throws -> String {
        guard let caller else { throw Problem(.unauthorized, "a bearer token is required") }
        return caller.user
    }

    /// Asserts that the caller may act for the system.
    ///
    /// - Parameter allowsLimited: whether a token that is limited to some jobs will do; whoever says so keeps to its limits.
    /// - Throws: ``Problem`` 401 or 403.
    @discardableResult
    package func requireService(allowsLimited: Bool = false) throws -> Caller {
        guard let caller else { throw Problem(.unauthorized, "a bearer token is required") }
        guard caller.isService else { throw Problem(.forbidden, "the token's scope must be service or admin") }
        guard allowsLimited || !caller.allowance.isLimited else { throw Self.limited }
        return caller
    }

    private static let limited = Problem(.forbidden, "the token is limited to sending jobs")

    /// Whether the caller may act for the system, beyond sending some jobs.
    var isService: Bool { self.caller.map { $0.isService && !$0.allowance.isLimited } ?? false }

    /// Asserts that the caller may see the system's insides.
    ///
    /// - Throws: ``Problem`` 401 or 403.
    func requireAdmin() throws {
        guard let caller else { throw Problem(.unauthorized, "a bearer token is required") }
        guard caller.scopes.contains(.admin) else { throw Problem(.forbidden, "the token's scope must be admin") }
        guard !caller.allowance.isLimited else { throw Self.limited }
    }

    /// A part of the path as text of 1 to `limit` characters.
    ///
    /// - Throws: ``Problem`` 400 that names it.
    func pathText(_ name: String, limit: Int) throws -> String {
        guard let text = PercentCoding.decode(try self.parameters.require(name)),
            (1...limit).contains(text.unicodeScalars.count), !text.utf8.contains(0)
        else {
            let reason = "must be text of 1 to \(limit) characters"
            throw Problem(.badRequest, "\(name) \(reason)", faults: [JobFault(name, reason)])
        }
        return text
    }
}
