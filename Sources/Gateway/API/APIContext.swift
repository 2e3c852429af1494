// Carillon · APIContext.swift
// SPDX-License-Identifier: Apache-2.0

package import Hummingbird
package import Services

/// What a request carries through its handlers.
package struct APIContext: RequestContext {
    package var coreContext: CoreRequestContextStorage
    /// Who calls; set by ``IdentityMiddleware``.
    package var caller: Caller?

    package init(source: ApplicationRequestContextSource) {
        self.coreContext = CoreRequestContextStorage(source: source)
    }

    /// The user who calls.
    ///
    /// - Throws: ``Problem`` 401 if nobody is known.
    func user() throws -> String {
        guard let caller else { throw Problem(.unauthorized, "a bearer token is required") }
        return caller.user
    }

    /// Asserts that the caller may act for the system.
    ///
    /// - Parameter allowsLimited: whether a token that is limited to some jobs will do; whoever says so keeps to its limits.
    /// - Throws: ``Problem`` 401 or 403.
    @discardableResult
    func requireService(allowsLimited: Bool = false) throws -> Caller {
        guard let caller else { throw Problem(.unauthorized, "a bearer token is required") }
        guard caller.isService else { throw Problem(.forbidden, "the token's scope must be service or admin") }
        guard allowsLimited || !caller.allowance.isLimited else {
            throw Problem(.forbidden, "the token is limited to sending jobs")
        }
        return caller
    }
}
