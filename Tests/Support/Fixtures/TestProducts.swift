// Carillon · TestProducts.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// Where the programs are that were built with the tests.
package enum TestProducts {
    /// `CARILLON_TEST_PRODUCTS`, or the folder of the test bundle.
    package static var directory: String {
        if let path = ProcessInfo.processInfo.environment["CARILLON_TEST_PRODUCTS"], !path.isEmpty { return path }
        return Bundle.main.executableURL?.deletingLastPathComponent().path ?? FileManager.default.currentDirectoryPath
    }

    /// The path of a built program such as `gateway`.
    ///
    /// - Throws: ``FixtureError`` if it has not been built.
    package static func path(_ product: String) throws -> String {
        let path = Self.directory + "/" + product
        guard FileManager.default.isExecutableFile(atPath: path) else {
            throw FixtureError("\(path) is missing; build it with: swift build --product \(product)")
        }
        return path
    }
}
