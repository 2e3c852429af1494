// Carillon · MethodRefusal.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import Hummingbird

/// Answers 405 with `Allow` (RFC 9110 section 15.5.6) where a path is known and the method is not.
enum MethodRefusal {
    /// HEAD is answered as GET is, and OPTIONS is left to whoever answers preflights.
    private static let methods: [HTTPRequest.Method] =
        [.get, .post, .put, .patch, .delete, .trace] + [HTTPRequest.Method("QUERY")].compactMap(\.self)

    /// Adds the refusals for all routes that the router has by now.
    static func add(to router: Router<APIContext>) {
        var allowed: [String: (path: RouterPath, methods: Set<HTTPRequest.Method>)] = [:]
        for route in router.routes {
            allowed[route.path.description, default: (route.path, [])].methods.insert(route.method)
        }
        for (path, known) in allowed.values {
            let names = known.union(known.contains(.get) ? [.head] : []).map(\.rawValue).sorted()
            for method in Self.methods where !known.contains(method) {
                router.on(path, method: method) { _, _ -> Response in
                    var problem = Problem(.methodNotAllowed, "the method \(method.rawValue) is not for this path")
                    problem.allowed = names
                    throw problem
                }
            }
        }
    }
}
