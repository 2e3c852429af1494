// Carillon · TypeCompletion.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Foundation

extension CompletionKind {
    /// The names of the catalog's types, where the variable `CATALOG` names one that can be read.
    package static var catalogTypes: CompletionKind {
        .custom { _, _, prefix in
            guard let path = ProcessInfo.processInfo.environment["CATALOG"],
                let catalog = try? CatalogLoader.load(path: path)
            else { return [] }
            return catalog.all.map(\.name).filter { $0.hasPrefix(prefix) }
        }
    }

    /// Lanes, the most urgent first.
    package static var lanes: CompletionKind { .list(["critical", "normal", "bulk"]) }
}
