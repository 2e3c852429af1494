// Carillon · CompatibilityGroups.swift
// SPDX-License-Identifier: Apache-2.0

import Hummingbird

/// Makes the groups of paths; the one place that says who may call them.
struct CompatibilityGroups {
    let router: Router<APIContext>
    let services: APIServices

    /// The paths of one system under a prefix, which ``ErrorStyle/paths`` names.
    func group(_ path: RouterPath) -> RouterGroup<APIContext> {
        self.router.group(path)
            .add(middleware: IdentityMiddleware(credentials: self.services.credentials, accepting: .compatible))
            .add(middleware: CallRateMiddleware(rate: self.services.callRate))
            .add(middleware: BodyBudgetMiddleware(budget: self.services.bodies))
    }
}
