// Carillon · TaskShapeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import HTTP

@Suite("The household-task app's JSON", .timeLimit(.minutes(10)))
struct TaskShapeTests {
    private static let apnsToken = String(repeating: "aB", count: 32)

    private static func device(_ token: String, low: UInt64, provider: Provider = .apns) -> Device {
        var device = Device(
            id: NotificationID(high: 0x01A1_F866_0D7B_441C, low: low),
            user: "u",
            platform: .ios,
            provider: provider,
            app: "default",
            environment: .production,
            token: token,
            registeredAt: Timestamp(milliseconds: 1_795_168_800_123)
        )
        device.deviceID = "D1"
        return device
    }

    private static func text(_ device: Device) -> String {
        var writer = JSONWriter()
        TaskShape.write(device, to: &writer)
        return String(decoding: writer.bytes, as: UTF8.self)
    }

    @Test("encodes a device as a row with an integer id")
    func device() {
        #expect(
            Self.text(Self.device("ab12", low: 0xA9A6_5597_FFFF_FFFF))
                == #"{"id":2147483647,"name":null,"registration_id":"ab12","device_id":"D1","active":true,"#
                + #""date_created":"2026-11-20T10:00:00.123Z"}"#)
        var silenced = Self.device("ab12", low: 7)
        silenced.isSilenced = true
        #expect(Self.text(silenced).contains(#""active":false"#))
        #expect(Self.text(Self.device("t", low: 7, provider: .fcm)).hasSuffix(#""cloud_message_type":"FCM"}"#))
    }

    @Test("finds a device by token, number or UUID, and none if two share the number")
    func finding() {
        let devices = [
            Self.device("ab12", low: 0x8000_0000_0000_0005), Self.device("cd34", low: 0x8000_0001_0000_0006),
            Self.device("ef56", low: 0x8000_0002_0000_0006), Self.device("77", low: 0x8000_0003_0000_0009),
        ]
        #expect(TaskDeviceNumber.find("ab12", in: devices)?.token == "ab12")
        #expect(TaskDeviceNumber.find("AB12", in: devices)?.token == "ab12")
        #expect(TaskDeviceNumber.find("5", in: devices)?.token == "ab12")
        #expect(TaskDeviceNumber.find("77", in: devices)?.token == "77")
        #expect(TaskDeviceNumber.find(devices[1].id.description, in: devices)?.token == "cd34")
        #expect(TaskDeviceNumber.find("6", in: devices) == nil)
        #expect(TaskDeviceNumber.find("unknown", in: devices) == nil)
        #expect(TaskDeviceNumber.find("99999999999999999999", in: devices) == nil)
    }

    @Test(
        "reads registrations",
        arguments: [
            (#"{"registration_id":"\#(Self.apnsToken)"}"#, nil, nil, nil),
            (#"{"registration_id":"\#(Self.apnsToken)","device_id":"D1","active":null}"#, "D1", nil, nil),
            (#"{"registration_id":"\#(Self.apnsToken)","device_id":12345,"active":true}"#, "12345", nil, false),
            (#"{"registration_id":"\#(Self.apnsToken)","name":"Ada","active":"false"}"#, nil, "Ada", true),
            (
                #"{"registration_id":"\#(Self.apnsToken)","name":"\#(String(repeating: "x", count: 256))"}"#, nil,
                String(repeating: "x", count: 255), nil
            ),
        ] as [(String, String?, String?, Bool?)]
    )
    func registrations(json: String, deviceID: String?, name: String?, isSilenced: Bool?) throws {
        var fields = FieldReader(lenient: try JSONParser.parse(Array(json.utf8)))
        let registration = TaskShape.registration(&fields, platform: .ios, provider: .apns)
        #expect(fields.faults.isEmpty)
        #expect(registration.token == Self.apnsToken)
        #expect(registration.deviceID == deviceID)
        #expect(registration.name == name)
        #expect(registration.isSilenced == isSilenced)
    }

    @Test(
        "names faults of registrations",
        arguments: [
            (#"{}"#, Provider.apns, ["registration_id"]), (#"{"registration_id":"xyz"}"#, .apns, ["registration_id"]),
            (#"{"registration_id":"\#(String(repeating: "a", count: 65))"}"#, .apns, ["registration_id"]),
            (#"{"registration_id":"\#(String(repeating: "ab", count: 31))"}"#, .apns, ["registration_id"]),
            (#"{"registration_id":"xyz:1","active":"maybe","device_id":[]}"#, .fcm, ["device_id", "active"]),
        ] as [(String, Provider, [String])]
    )
    func faults(json: String, provider: Provider, places: [String]) throws {
        var fields = FieldReader(lenient: try JSONParser.parse(Array(json.utf8)))
        _ = TaskShape.registration(&fields, platform: .ios, provider: provider)
        #expect(fields.faults.map(\.field) == places)
    }
}
