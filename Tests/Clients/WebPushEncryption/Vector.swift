// Carillon · Vector.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Sandbox
import Testing

/// The example of RFC 8291 section 5 and appendix A.
enum Vector {
    static let message = Array("When I grow up, I want to be a watermelon".utf8)
    static let privateKey = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
    static let publicKey =
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
    static let secret = "BTBZMqHH6r4Tts7J_aSIgg"
    static let ownPrivateKey = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
    static let salt = "DGv6ra1nlYgDCS1FRnbzlw"
    static let body =
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl"
        + "7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"

    static func bytes(_ text: String) throws -> [UInt8] { try #require(Base64URL.decode(text.utf8)) }

    /// The browser of the example.
    static func browser() throws -> SandboxSubscription.Keys {
        let key = try P256.KeyAgreement.PrivateKey(rawRepresentation: Self.bytes(Self.privateKey))
        return SandboxSubscription.Keys(privateKey: key, secret: try Self.bytes(Self.secret))
    }
}
