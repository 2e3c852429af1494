// Carillon · Corpus.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation

/// The first inputs: small files, one each.
enum Corpus {
    static func load(folder: String) throws -> [[UInt8]] {
        guard let names = try? FileManager.default.contentsOfDirectory(atPath: folder), !names.isEmpty else {
            throw ValidationError("\(folder) has no inputs; run in the checkout or give --corpus")
        }
        // In order, as the same seed must make the same inputs.
        return names.sorted().compactMap { FileManager.default.contents(atPath: "\(folder)/\($0)") }.map { Array($0) }
    }
}
