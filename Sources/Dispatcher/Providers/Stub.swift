package import Model
package enum ProviderResult: Sendable { case answered(ProviderAnswer), unanswered(reason: String, mayHaveBeenSent: Bool), noCredential(reason: String) }
package struct ProviderReply: Sendable {
    package var result: ProviderResult
    package var transcript: String?
    package init(_ result: ProviderResult, transcript: String? = nil) { self.result = result; self.transcript = transcript }
}
package protocol ProviderChannel: Sendable {
    var provider: Provider { get }
    var app: String { get }
    func send(_ message: PushMessage, to device: Device) async -> ProviderReply
}
