// Carillon · TestLog.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Logging

/// The log of what tests run inside their own process.
package enum TestLog {
    /// Silent, unless `CARILLON_TEST_LOG` names a level.
    package static let logger: Logger = {
        let level = ProcessInfo.processInfo.environment["CARILLON_TEST_LOG"].flatMap { Logger.Level(rawValue: $0) }
        guard let level else { return Logger(label: "test") { _ in SwiftLogNoOpLogHandler() } }
        var logger = Logger(label: "test") { StreamLogHandler.standardError(label: $0) }
        logger.logLevel = level
        return logger
    }()
}
