// Carillon · ProviderProfile.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Providers
import Sandbox
import Testing
import _CryptoExtras

/// The facts that the conformance suite needs about a provider: an app's settings for the sandbox,
/// and the tokens that select answers.
///
/// A new provider needs a profile and passes the suite if its answer table is correct.
struct ProviderProfile: Sendable, CustomTestStringConvertible {
    /// The way to cause an answer.
    struct Row: Sendable {
        /// The prefix of the token.
        var marker = ""
        /// Changes the correct settings.
        var settings: @Sendable (inout [String: String], ProviderSandbox) -> Void = { _, _ in }
        /// Changes the sandbox's usual configuration.
        var sandbox: (@Sendable (inout SandboxConfiguration) -> Void)?
    }

    /// An answer that needs more than an unusual token.
    struct Circumstance: Sendable {
        let row: Row
        let answer: ProviderAnswer

        init(_ row: Row, _ answer: ProviderAnswer) {
            self.row = row
            self.answer = answer
        }
    }

    static let usualNonsense = ["html-", "half-", "empty-", "echo-"]

    let provider: Provider
    let settings: @Sendable (ProviderSandbox) -> [String: String]
    /// Returns a unique token that begins with a marker.
    let token: @Sendable (_ marker: String, ProviderSandbox) -> String
    /// The way to cause each row of the answer table.
    let rows: [String: Row]
    /// Answers beyond the table's rows, by marker: the same reason with another meaning, or without
    /// a row.
    var answers: [String: ProviderAnswer] = [:]
    /// Answers caused by unusual settings or an unusual sandbox, by description.
    var circumstances: [String: Circumstance] = [:]
    /// Markers of answers with a delay.
    var delayed: [String] = []
    /// Markers of meaningless answers.
    var nonsense = Self.usualNonsense
    /// Markers of successes that count by status with any body.
    var bareSuccesses: [String] = []
    var silent = "silent-"
    var cut = "cut-"
    /// Ends the connection before the message was sent; nil if the message is sent at once.
    var cutEarly: String?
    /// Ends the connection the first time; nil if the protocol has no such thing.
    var goAway: String? = "goaway-once-"
    /// Refuses the stream the first time; nil if the protocol has no such thing.
    var refused: String? = "refused-once-"
    /// Resets the stream; nil if the protocol has no such thing.
    var reset: String? = "reset-"
    var needsHTTP2 = false
    var takesAway = true
    /// Removes secrets from the usual settings that may come from files instead, which accept any
    /// line.
    var withoutSecrets: (@Sendable (inout [String: String]) -> Void)?
    /// File contents of the wrong kind.
    var wrongFiles: [String] = []
    /// Returns the text that a device shows.
    let body: @Sendable (JSONValue) -> String?

    var kind: any ProviderKind.Type {
        get throws { try #require(ProviderKinds.kind(of: self.provider)) }
    }

    var testDescription: String { self.provider.rawValue }

    static let all = [Self.fcm, .apns, .webpush, .email, .webhook]
}

extension ProviderProfile {
    private static let random: @Sendable () -> String = {
        String(UInt64.random(in: .min ... .max) | 1 << 63, radix: 16)
    }

    private static func rows(_ markers: [String: String]) -> [String: Row] { markers.mapValues { Row(marker: $0) } }

    private static let otherCurve = P384.Signing.PrivateKey().pemRepresentation
    private static let wrongKeys: [String] = {
        let rsa = try? _RSA.Signing.PrivateKey(keySize: .bits2048).pkcs8PEMRepresentation
        return [Self.otherCurve, P256.Signing.PrivateKey().publicKey.pemRepresentation] + (rsa.map { [$0] } ?? [])
    }()

    static let fcm = ProviderProfile(
        provider: .fcm,
        settings: { ["credentials": $0.serviceAccountPath, "endpoint": $0.url] },
        token: { marker, _ in marker + Self.random() },
        rows: Self.rows([
            "UNREGISTERED": "unregistered-", "SENDER_ID_MISMATCH": "mismatch-", "INVALID_ARGUMENT": "invalid-",
            "THIRD_PARTY_AUTH_ERROR": "thirdparty-", "QUOTA_EXCEEDED": "quota-", "UNAVAILABLE": "unavailable-",
            "INTERNAL": "internal-", "UNSPECIFIED_ERROR": "unspecified-", "UNAUTHENTICATED": "unauthenticated-",
            "PERMISSION_DENIED": "permission-",
        ]),
        answers: [
            "bad-": .deadToken(reason: "INVALID_ARGUMENT", evidence: nil),
            "badfield-": .deadToken(reason: "INVALID_ARGUMENT", evidence: nil),
            "devicequota-": .retryDevice(
                reason: "QUOTA_EXCEEDED", after: .seconds(ProviderBench.retryAfter)),
            "topicquota-": .retryDevice(
                reason: "QUOTA_EXCEEDED", after: .seconds(ProviderBench.retryAfter)),
            "internal-": .retry(reason: "INTERNAL", after: .seconds(10)),
            // Unknown reasons map by status; a 401 after a new access token is a configuration
            // fault.
            "new400-": .refused(reason: "NEW_REASON"),
            "new404-": .refused(reason: "NEW_REASON"),
            "new401-": .configuration(reason: "NEW_REASON"),
            "new403-": .configuration(reason: "NEW_REASON"),
            "new408-": .retry(reason: "NEW_REASON", after: .seconds(10)),
            "new409-": .retry(reason: "NEW_REASON", after: .seconds(10)),
            "new421-": .retry(reason: "NEW_REASON", after: .seconds(10)),
            "new425-": .retry(reason: "NEW_REASON", after: .seconds(10)),
            "new429-": .slowDown(reason: "NEW_REASON", after: .seconds(ProviderBench.retryAfter)),
            "new499-": .retry(reason: "NEW_REASON", after: .seconds(10)),
            "new500-": .retry(reason: "NEW_REASON", after: .seconds(10)),
            "lost-": .retry(reason: "HTTP_404", after: .seconds(10)),
            // These statuses may have reasons of every reaction, and theirs were cut.
            "part400-": .retry(reason: "answer_cut:400", after: .seconds(10)),
            "part401-": .retry(reason: "answer_cut:401", after: .seconds(10)),
            "part403-": .retry(reason: "answer_cut:403", after: .seconds(10)),
            "part404-": .retry(reason: "answer_cut:404", after: .seconds(10)),
            "flood403-": .retry(reason: "answer_cut:403", after: .seconds(10)),
            "flood404-": .retry(reason: "answer_cut:404", after: .seconds(10)),
            "part429-": .slowDown(reason: "HTTP_429", after: .seconds(5)),
            "flood429-": .slowDown(reason: "HTTP_429", after: .seconds(5)),
            "part503-": .retry(reason: "HTTP_503", after: .seconds(5)),
            "flood503-": .retry(reason: "HTTP_503", after: .seconds(5)),
        ],
        delayed: ["quota-", "devicequota-", "unavailable-"],
        // A success needs its body, which has FCM's name for the message.
        nonsense: Self.usualNonsense + ["huge-", "page-", "blank-", "torn-", "part200-", "lost-"],
        wrongFiles: [
            "[]", "{}", Self.otherCurve,
            #"{"project_id":"p","client_email":"e","private_key_id":"k","token_uri":"https://x","private_key":""#
                + Self.otherCurve.replacing("\n", with: "\\n") + #""}"#,
        ],
        body: { $0["message"]?["notification"]?["body"]?.string }
    )

    static let apns = ProviderProfile(
        provider: .apns,
        settings: {
            [
                "key": $0.apnsKeyPath, "key_id": $0.apnsKeyID, "team_id": $0.apnsTeamID, "topic": "org.example.app",
                "endpoint": $0.url,
            ]
        },
        token: { marker, _ in
            let digits = (0..<4).map { _ in Self.random() }.joined()
            return marker.isEmpty ? "0" + digits.dropFirst() : marker + digits.dropFirst(marker.utf8.count)
        },
        rows: Self.rows(
            [
                "BadDeviceToken": "01", "DeviceTokenNotForTopic": "02", "BadCollapseId": "03",
                "BadExpirationDate": "04", "BadMessageId": "05", "BadPriority": "06", "BadTopic": "07",
                "MissingTopic": "08", "MissingDeviceToken": "09", "DuplicateHeaders": "0a", "InvalidPushType": "0b",
                "PayloadEmpty": "0c", "TopicDisallowed": "0d", "IdleTimeout": "0e", "ExpiredProviderToken": "31",
                "InvalidProviderToken": "32", "MissingProviderToken": "33", "BadCertificate": "34",
                "BadCertificateEnvironment": "35", "UnrelatedKeyIdInToken": "36", "BadEnvironmentKeyInToken": "37",
                "BadEnvironmentKeyIdInToken": "38", "Forbidden": "39", "BadPath": "44", "MethodNotAllowed": "45",
                "Unregistered": "10", "ExpiredToken": "12", "PayloadTooLarge": "14", "TooManyRequests": "29",
                "TooManyProviderTokenUpdates": "2a", "InternalServerError": "50", "ServiceUnavailable": "53",
                "Shutdown": "54",
            ].mapValues { "dead\($0)00" }),
        // The timestamp is Apple's, even if the answer has the current time.
        answers: [
            "dead1100": .deadToken(reason: "Unregistered", evidence: Timestamp(seconds: 1_577_836_800)),
            "dead1300": .deadToken(reason: "ExpiredToken", evidence: Timestamp(seconds: 1_577_836_800)),
            // Unknown reasons map by status, with any timestamp.
            "dead9000": .refused(reason: "NewBadRequest"),
            "dead9100": .retry(reason: "NewTimeout", after: nil),
            "dead9200": .retry(reason: "NewMisdirected", after: nil),
            "dead9300": .configuration(reason: "NewForbidden"),
            "dead9400": .retry(reason: "NewTooEarly", after: nil),
            "dead9500": .retry(reason: "NewServerError", after: nil),
            "dead9900": .retryDevice(reason: "NewTooMany", after: .seconds(60)),
            "dead9a00": .deadToken(reason: "NewGone", evidence: nil),
            "deadef00": .retry(reason: "HTTP_404", after: nil),
            // 400 and 403 may have reasons of every reaction, and theirs were cut.
            "deadd000": .retry(reason: "answer_cut:400", after: nil),
            "deadd300": .retry(reason: "answer_cut:403", after: nil),
            "deadc000": .retry(reason: "answer_cut:400", after: nil),
            "deadc300": .retry(reason: "answer_cut:403", after: nil),
            "deadda00": .deadToken(reason: "HTTP_410", evidence: nil),
            "deadca00": .deadToken(reason: "HTTP_410", evidence: nil),
            "deadd900": .retryDevice(reason: "HTTP_429", after: .seconds(60)),
            "deadc900": .retryDevice(reason: "HTTP_429", after: .seconds(60)),
            "deadd500": .retry(reason: "HTTP_503", after: .seconds(5)),
            "deadc500": .retry(reason: "HTTP_503", after: .seconds(5)),
        ],
        delayed: ["dead5300", "dead5400"],
        // A success has the message's id in its header and no body.
        nonsense: [
            "deade600", "deade700", "deade800", "deade900", "deadea00", "deadec00", "deaded00", "deadee00", "deadef00",
            "deadc200", "deadd200",
        ],
        silent: "deade200",
        cut: "deade300",
        goAway: "deade401",
        refused: "deade501",
        reset: "deadeb00",
        needsHTTP2: true,
        wrongFiles: Self.wrongKeys,
        body: { $0["aps"]?["alert"]?["body"]?.string }
    )

    static let webpush = ProviderProfile(
        provider: .webpush,
        settings: { ["key": $0.vapidKeyPath, "subject": "mailto:push@example.com"] },
        token: { marker, sandbox in sandbox.subscription(marker + Self.random()).json },
        rows: Self.rows([
            "HTTP_400": "badrequest-", "HTTP_401": "unauthorized-", "HTTP_403": "forbidden-",
            "HTTP_404": "missing-", "HTTP_406": "throttled-", "HTTP_408": "timeout-", "HTTP_410": "gone-",
            "HTTP_413": "toolarge-", "HTTP_421": "misdirected-", "HTTP_425": "early-", "HTTP_429": "limited-",
            "HTTP_500": "internal-", "HTTP_503": "unavailable-",
            "VapidPkHashMismatch": "wrongkey-",
        ]),
        answers: [
            // Following the redirect would give the status of its target.
            "moved-": .refused(reason: "HTTP_307"),
            "conflict-": .refused(reason: "HTTP_409"),
            "timeout-": .retry(reason: "HTTP_408", after: .seconds(10)),
            "badgateway-": .retry(reason: "HTTP_502", after: .seconds(10)),
            "crowded-": .retryDevice(reason: "HTTP_429", after: .seconds(60)),
            // A proxy's page looks like a service's own.
            "lost-": .deadToken(reason: "HTTP_404", evidence: nil),
            // Apple's 400 may be about the key; other statuses need no reason.
            "part400-": .retry(reason: "answer_cut:400", after: .seconds(10)),
            "flood400-": .retry(reason: "answer_cut:400", after: .seconds(10)),
            "part403-": .configuration(reason: "HTTP_403", concernsAll: false),
            "part404-": .deadToken(reason: "HTTP_404", evidence: nil),
            "part410-": .deadToken(reason: "HTTP_410", evidence: nil),
            "flood410-": .deadToken(reason: "HTTP_410", evidence: nil),
            "part429-": .retryDevice(reason: "HTTP_429", after: .seconds(5)),
            "flood503-": .retry(reason: "HTTP_503", after: .seconds(5)),
        ],
        delayed: ["throttled-", "limited-", "limiteddate-", "unavailable-"],
        nonsense: Self.usualNonsense + ["page-"],
        bareSuccesses: ["huge-", "blank-", "part200-"],
        takesAway: false,
        wrongFiles: Self.wrongKeys,
        body: { $0["notification"]?["body"]?.string }
    )

    static let webhook = ProviderProfile(
        provider: .webhook,
        settings: { ["url": $0.webhookURL, "secret": $0.webhookSecret] },
        token: { marker, _ in marker + Self.random() },
        rows: Self.rows([
            "HTTP_400": "badrequest-", "HTTP_401": "unauthorized-", "HTTP_403": "forbidden-",
            "HTTP_404": "missing-", "HTTP_408": "timeout-", "HTTP_410": "gone-", "HTTP_413": "toolarge-",
            "HTTP_421": "misdirected-", "HTTP_425": "early-", "HTTP_429": "limited-", "HTTP_500": "internal-",
            "HTTP_503": "unavailable-",
        ]),
        answers: [
            "moved-": .refused(reason: "HTTP_307"),
            "conflict-": .refused(reason: "HTTP_409"),
            "timeout-": .retry(reason: "HTTP_408", after: .seconds(10)),
            "badgateway-": .retry(reason: "HTTP_502", after: .seconds(10)),
            "crowded-": .slowDown(reason: "HTTP_429", after: .seconds(60)),
            // A user's token must not stop the deliveries of others.
            "forbidden-": .configuration(reason: "HTTP_403", concernsAll: false),
            "part400-": .refused(reason: "HTTP_400"),
            "flood404-": .refused(reason: "HTTP_404"),
            "part410-": .deadToken(reason: "HTTP_410", evidence: nil),
            "flood410-": .deadToken(reason: "HTTP_410", evidence: nil),
            "part429-": .slowDown(reason: "HTTP_429", after: .seconds(5)),
            "flood503-": .retry(reason: "HTTP_503", after: .seconds(5)),
        ],
        delayed: ["limited-", "unavailable-"],
        bareSuccesses: ["huge-", "page-", "blank-", "torn-", "part200-"],
        withoutSecrets: { $0["secret"] = nil },
        body: { $0["notification"]?["body"]?.string }
    )

    /// Returns mail from an address that begins with a marker.
    private static func from(_ marker: String) -> Row {
        Row(settings: { settings, _ in settings["from"] = "\(marker)\(Self.random())@example.com" })
    }

    private static func relay(_ relay: SandboxConfiguration.Relay) -> Row { Row(sandbox: { $0.relay = relay }) }

    private static let mailCircumstances: [String: Circumstance] = {
        let minute = Duration.seconds(60)
        return [
            // Before the recipient: for a recipient the same replies have other meanings.
            "a sender who is to wait": Circumstance(
                Self.from("slowsender-"), .retry(reason: "SMTP_451_4.7.1", after: minute)),
            "a sender who is sent away": Circumstance(
                Self.from("busysender-"), .retry(reason: "SMTP_421_4.7.0", after: minute)),
            "a sender who may not send": Circumstance(
                Self.from("badsender-"), .configuration(reason: "SMTP_550_5.7.1")),
            "a sender who is not known": Circumstance(
                Self.from("nosender-"), .configuration(reason: "SMTP_550_5.1.1")),
            "a size that is too large": Circumstance(
                Self.from("largesender-"), .refused(reason: "SMTP_552_5.3.4")),
            "no service": Circumstance(
                Self.relay(.withoutService), .configuration(reason: "SMTP_554_5.3.2")),
            "no TLS": Circumstance(Self.relay(.refusedTLS), .configuration(reason: "SMTP_502_5.5.1")),
            "no TLS for now": Circumstance(
                Self.relay(.busyTLS), .retry(reason: "SMTP_454_4.7.0", after: minute)),
            "no login for now": Circumstance(
                Self.relay(.busyLogin), .retry(reason: "SMTP_454_4.7.0", after: minute)),
        ]
    }()

    static let email = ProviderProfile(
        provider: .email,
        settings: { ["url": $0.smtpURL, "from": "Carillon <notices@example.com>"] },
        token: { marker, _ in "\(marker)\(Self.random())@example.com" },
        rows: Self.rows([
            "SMTP_550_5.1.1": "bounce-", "SMTP_550_5.1.2": "nodomain-", "SMTP_551_5.1.6": "moved-",
            "SMTP_550_5.1.6": "movedaway-", "SMTP_550_5.1.10": "unknown-", "SMTP_556_5.1.10": "nullmx-",
            "SMTP_551": "notlocal-", "SMTP_556": "nomail-",
            "SMTP_550_5.7.1": "refused-", "SMTP_554_5.7.1": "norelay-", "SMTP_552_5.3.4": "toolarge-",
            "SMTP_421_4.3.2": "closing-", "SMTP_550_5.4.5": "overquota-",
        ]).merging([
            "SMTP_535_5.7.8": Row(settings: { settings, sandbox in
                settings["url"] = sandbox.smtpURL.replacing("pass%3A", with: "wrong%3A")
            }),
            "SMTP_530_5.7.0": Row(settings: { settings, sandbox in
                settings["url"] = "smtp://" + (sandbox.smtpURL.split(separator: "@").last.map { String($0) } ?? "")
            }),
            "login_denied": Row(sandbox: { $0.relay = .strangeLogin }),
            "no_starttls": Row(sandbox: { $0.relay = .withoutTLS }),
        ]) { $1 },
        answers: [
            "deadend-": .deadToken(reason: "SMTP_550_5.1.1", evidence: nil),
            "gone-": .refused(reason: "SMTP_550"), "spam-": .refused(reason: "SMTP_554_5.7.1"),
            "full-": .refused(reason: "SMTP_552_5.2.2"), "disabled-": .refused(reason: "SMTP_550_5.2.1"),
            "busy-": .retryDevice(reason: "SMTP_451_4.7.1", after: .seconds(60)),
            "later-": .retry(reason: "SMTP_452_4.3.1", after: .seconds(60)),
            "netdown-": .retry(reason: "SMTP_451_4.4.1", after: .seconds(60)),
            "wantslogin-": .configuration(reason: "SMTP_530_5.7.0"),
        ],
        circumstances: Self.mailCircumstances,
        nonsense: ["babble-"],
        cutEarly: "cutearly-",
        goAway: nil,
        refused: nil,
        reset: nil,
        takesAway: false,
        withoutSecrets: { $0["url"] = $0["url"]?.replacing("pass%3Aword%2F1@", with: "@") },
        body: { $0["text"]?.string }
    )
}
