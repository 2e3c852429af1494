// Carillon · APIContext.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Protocols

/// The context of a request: its caller, and its path for the log.
package struct APIContext: RequestContext {
    package var coreContext: CoreRequestContextStorage
    /// The caller; set by ``IdentityMiddleware``.
    var caller: Caller?

    package init(source: ApplicationRequestContextSource) {
        self.coreContext = CoreRequestContextStorage(source: source)
    }

    /// The route's path, for the log.
    ///
    /// The request's own path may contain a push token, so it is never logged.
    var loggedPath: String { self.endpointPath ?? "NotFound" }

    /// Returns the caller.
    ///
    /// - Throws: ``Problem`` 401 without one.
    func requireCaller() throws -> Caller {
        guard let caller else { throw Problem(.unauthorized, "a bearer token is required") }
        return caller
    }

    /// Returns the user who calls.
    ///
    /// - Throws: ``Problem`` 401 without a caller.
    func user() throws -> String { try self.requireCaller().user }

    /// Requires a token with the scope `service` or `admin`.
    ///
    /// - Parameter allowsLimited: whether a token suffices that may send only some jobs; the caller
    ///   must then enforce its limits.
    /// - Throws: ``Problem`` 401 or 403.
    @discardableResult
    func requireService(allowsLimited: Bool = false) throws -> Caller {
        let caller = try self.requireCaller()
        guard caller.isService else { throw Problem(.forbidden, "the token's scope must be service or admin") }
        guard allowsLimited || !caller.allowance.isLimited else { throw Self.limited }
        return caller
    }

    private static let limited = Problem(.forbidden, "the token is limited to sending jobs")

    /// Whether the caller is a service with unlimited access.
    var isService: Bool { self.caller.map { $0.isService && !$0.allowance.isLimited } ?? false }

    /// Requires a token with the scope `admin`.
    ///
    /// - Throws: ``Problem`` 401 or 403.
    func requireAdmin() throws {
        let caller = try self.requireCaller()
        guard caller.scopes.contains(.admin) else { throw Problem(.forbidden, "the token's scope must be admin") }
        guard !caller.allowance.isLimited else { throw Self.limited }
    }

    /// Returns the `id` of the path.
    ///
    /// - Parameter thing: the kind of thing that the id names, for the error.
    /// - Throws: ``Problem`` 404 if it is no id.
    func pathID(of thing: String = "notification") throws -> Identifier {
        guard let id = Identifier(try self.parameters.require("id")) else { throw Problem.noSuch(thing) }
        return id
    }

    /// Returns a parameter of the path as text of 1 to `limit` characters.
    ///
    /// - Throws: ``Problem`` 400 that names the parameter.
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
