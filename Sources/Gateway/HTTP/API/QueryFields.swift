// Carillon · QueryFields.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Protocols

/// The query of a request, with checked access to its parameters.
struct QueryFields {
    private var values: [String: String] = [:]
    private var faults: [JobFault] = []

    /// Reads a query; what is none of `names`, or occurs twice, is a fault.
    init(_ request: Request, allowing names: Set<String>) {
        do throws(QueryFault) {
            for field in try RequestQuery(request.uri.query ?? "").fields {
                self.values[field.name] = field.value
                if !names.contains(field.name) { self.fault(String(field.name.prefix(64)), "is not a parameter here") }
            }
        } catch {
            self.fault(error.name, error.reason)
        }
    }

    mutating func fault(_ name: String, _ reason: String) {
        self.faults.append(JobFault(name, reason))
    }

    /// A parameter's text of 1 to `limit` characters; nil if it is absent.
    mutating func text(_ name: String, limit: Int, isRequired: Bool = false) -> String? {
        guard let text = self.values[name] else {
            if isRequired { self.fault(name, "is missing") }
            return nil
        }
        guard (1...limit).contains(text.unicodeScalars.count), !text.utf8.contains(0) else {
            self.fault(name, "must be text of 1 to \(limit) characters")
            return nil
        }
        return text
    }

    /// A whole number in a range; nil if it is absent.
    mutating func integer(_ name: String, in range: ClosedRange<Int64>) -> Int64? {
        guard let text = self.values[name] else { return nil }
        if let value = Int64(text), range.contains(value), text.utf8.first != UInt8(ascii: "+") { return value }
        self.fault(
            name,
            range.upperBound == .max
                ? "must be a whole number from \(range.lowerBound)"
                : "must be a whole number from \(range.lowerBound) to \(range.upperBound)"
        )
        return nil
    }

    /// `true` or `false`; the default if it is absent.
    mutating func flag(_ name: String, default value: Bool = false) -> Bool {
        switch self.values[name] {
        case nil: return value
        case "false": return false
        case "true": return true
        default:
            self.fault(name, "must be true or false")
            return false
        }
    }

    /// - Throws: ``Problem`` 400 with every fault.
    func finish() throws {
        guard self.faults.isEmpty else {
            let reasons = self.faults.map(\.description).joined(separator: "; ")
            throw Problem(.badRequest, reasons, faults: self.faults)
        }
    }
}

extension RequestQuery {
    /// The query of a request.
    ///
    /// - Throws: ``Problem`` 400 that names what is wrong with it.
    package init(of request: Request) throws {
        do throws(QueryFault) {
            try self.init(request.uri.query ?? "")
        } catch {
            throw Problem(error)
        }
    }
}

extension Problem {
    /// A query that cannot be read: 400.
    package init(_ fault: QueryFault) {
        self.init(.badRequest, fault.description, faults: [JobFault(fault.name, fault.reason)])
    }
}
