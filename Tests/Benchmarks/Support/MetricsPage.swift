// Carillon · MetricsPage.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation

/// What a service prints at `/metrics`.
struct MetricsPage {
    private let client: TransferClient
    private let url: String

    /// - Parameter program: one that has been started; its first line tells where it listens.
    init(of program: ChildProgram) async throws {
        var configuration = TransferConfiguration()
        configuration.allowPlainHTTP = true
        self.client = try TransferClient(configuration: configuration, logger: Environment.logger)
        self.url = String(try await program.line("ready ").dropFirst("ready ".count)) + "/metrics"
    }

    /// The values of a metric by one of its labels.
    func values(_ name: String, by label: String) async throws -> [String: Double] {
        var values: [String: Double] = [:]
        for line in try await self.text().split(separator: "\n") where line.hasPrefix(name + "{") {
            let mark = "\(label)=\""
            guard let start = line.range(of: mark)?.upperBound, let value = line.split(separator: " ").last,
                let number = Double(value)
            else { continue }
            values[String(line[start...].prefix { $0 != "\"" }), default: 0] += number
        }
        return values
    }

    private func text() async throws -> String {
        let request = TransferRequest(.get, url: self.url, maximumResponseBytes: 8 << 20)
        switch await self.client.perform(request) {
        case .answered(let response) where response.status == 200: return String(decoding: response.body, as: UTF8.self)
        case .answered(let response): throw ValidationError("\(self.url) answered \(response.status)")
        case .unanswered(let failure): throw ValidationError("\(self.url) did not answer: \(failure)")
        }
    }
}
