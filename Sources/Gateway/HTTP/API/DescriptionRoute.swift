// Carillon · DescriptionRoute.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import NIOCore

/// Serves a description of calls to everyone.
package enum DescriptionRoute {
    /// Adds the route.
    ///
    /// - Parameter document: rendered once; nil, which is answered with 500, if it cannot be put together: an error of the
    ///   build, which a test finds.
    package static func add(_ document: JSONValue?, at path: RouterPath, to router: Router<APIContext>) {
        let bytes = document.map { ByteBuffer(bytes: JSONWriter.bytes(of: $0)) }
        router.get(path) { _, _ -> Response in
            guard let bytes else { throw Problem(.internalServerError, "the description cannot be read") }
            return Response(
                status: .ok,
                headers: [.contentType: "application/json", .cacheControl: "public, max-age=300"],
                body: ResponseBody(byteBuffer: bytes)
            )
        }
    }
}
