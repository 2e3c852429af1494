// Carillon · KeySet.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The keys of a JWKS document (RFC 7517 section 5) that can check tokens.
package struct KeySet: Sendable {
    /// How many keys a document may have: a token without `kid` is tried with all of its algorithm's.
    private static let most = 64

    private let keys: [VerificationKey]
    /// Why other keys of the document are not used, by their place.
    package let passedOver: [String]

    /// Reads a document; keys that are not for RS256 or ES256 signatures, or not strong enough, are passed over.
    ///
    /// - Throws: ``KeySetFault`` if it is no JWKS document, has no usable key, or gives a name to two keys.
    package init(_ document: [UInt8]) throws(KeySetFault) {
        let value: JSONValue
        do throws(JSONFault) {
            value = try JSONParser.parse(document)
        } catch {
            throw KeySetFault("the document is \(error)")
        }
        guard let members = value["keys"]?.array else { throw KeySetFault("the document has no array `keys`") }
        guard members.count <= Self.most else { throw KeySetFault("the document has more than \(Self.most) keys") }
        var keys: [VerificationKey] = []
        var passedOver: [String] = []
        var names: Set<ExactText> = []
        for (place, member) in members.enumerated() {
            do throws(VerificationKey.Unfit) {
                let key = try VerificationKey(member)
                if let kid = key.kid, !names.insert(ExactText(kid)).inserted {
                    throw VerificationKey.Unfit("has the kid of another")
                }
                keys.append(key)
            } catch {
                passedOver.append("key \(place) \(error.reason)")
            }
        }
        guard !keys.isEmpty else {
            throw KeySetFault((["the document has no usable key"] + passedOver.prefix(4)).joined(separator: "; "))
        }
        self.keys = keys
        self.passedOver = passedOver
    }

    /// The keys that a token may be signed with: those of its algorithm, and if it names one, that one.
    func candidates(_ algorithm: VerificationKey.Algorithm, kid: String?) -> [VerificationKey] {
        self.keys.filter { key in
            key.algorithm == algorithm && (kid == nil || key.kid.map { ExactText($0) } == kid.map { ExactText($0) })
        }
    }

    package var count: Int { self.keys.count }
}

/// Why a key set is not to be had or not usable.
package struct KeySetFault: Error, Sendable, Equatable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) {
        self.description = description
    }
}
